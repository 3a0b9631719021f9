"""Several devices and several processes: meshes, layouts, and what processes agree on."""
