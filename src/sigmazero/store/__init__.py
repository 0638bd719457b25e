"""Facts on disk: what is known of every sample, whole, checked, and never written twice."""
