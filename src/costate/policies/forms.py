"""Names of the forms in which a policy acts, by which bundles know them.

They are those of the learners that each form was made for first, because a file format stays what it is; any learner
whose controller has a form can be exported in it.
"""

ACTOR_CRITIC = "ppo"
"""One network with a critic on its memory."""
SQUASHED_ACTOR = "sac"
"""An actor with squashed controls, which also reads what it did last; its critic stays behind."""
