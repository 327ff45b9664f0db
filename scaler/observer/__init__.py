"""Shows GPU readings under the names of NVIDIA's DCGM exporter on nodes where none runs."""
