"""Client telemetry (KIP-714): metrics that the brokers of a cluster ask for, pushed to them. Off by `enable_metrics_push`.

TelemetryPusher -> PushSchedule (what to do next, and when)  -> GetTelemetrySubscriptions, PushTelemetry
                -> figures (which metrics)  -> otlp (their bytes)
"""
