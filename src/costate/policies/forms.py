"""Names of the forms in which a policy acts, by which bundles know them.

Each name is that of the learner for which the form was made first, because a file format stays what it is.
Any learner whose controller has a form can be exported in it.
"""

ACTOR_CRITIC = "ppo"
"""One network with a critic on its memory."""
SQUASHED_ACTOR = "sac"
"""An actor with squashed controls, which also reads its last control. Its critic is not included."""
