"""Two-way messaging: requests wait for their responses, which are single documents with the same token."""
