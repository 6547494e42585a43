"""Fine-tuning with Softermax: the paper's tasks, training in three arms, the accuracy table."""
