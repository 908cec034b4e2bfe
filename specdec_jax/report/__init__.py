"""Pages and pictures of what was generated and measured."""
