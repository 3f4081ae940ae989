"""The file in the document is correct."""

from __future__ import annotations

import re
from pathlib import Path

from sparrow import pipelines

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()


def test_the_pipeline_of_the_document_has_no_fault(tmp_path):
    (text,) = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    (tmp_path / "customers.csv").write_text("customer_id,name,country\n1,Ann,DK\n")
    (tmp_path / "orders.yml").write_text(text)
    pipeline = pipelines.load(str(tmp_path / "orders.yml"))
    pipeline.check()
    assert [flow.name for flow in pipeline.flows] == ["clean", "revenue"]
