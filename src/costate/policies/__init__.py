"""Parts of a policy: encoder, core, readout, critic; and what acts with them."""
