"""Generated from protos/lingua_scheduler/v1 by `make proto`. Not edited by hand."""
