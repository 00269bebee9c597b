"""What a program has to do with the machine it runs on: its clock, its id, signals, the service manager."""
