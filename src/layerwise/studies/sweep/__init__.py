"""`layerwise sweep`."""

PAGES = {"sweep": "page:SWEEP"}
FINDINGS = ("painters:PAINTERS_FINDINGS", "painters_benchmarks:BENCHMARK_FINDINGS")
