"""What streaming programs say of themselves: how far pipelines are, and which group a stream's progress belongs to. In memory only."""
