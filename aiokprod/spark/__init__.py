"""Spark: `df.write.format("aiokprod")` and `df.writeStream.format("aiokprod")`. Needs the extra `spark`."""
