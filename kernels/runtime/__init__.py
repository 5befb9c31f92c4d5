"""What runs kernels: streams of steps (`runner.py`), its threads (`workers.py`), launches (`launcher.py`)."""
