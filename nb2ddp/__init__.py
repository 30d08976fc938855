"""Turn an Unsloth fine-tuning notebook into a script that trains with Distributed Data Parallel."""
