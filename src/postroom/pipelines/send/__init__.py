"""Send pipelines: their definition, and how their stages run."""
