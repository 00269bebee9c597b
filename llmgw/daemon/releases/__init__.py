"""Which files is an engine made of? Found out once, by the control plane, for all nodes."""
