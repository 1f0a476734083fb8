"""Secrets in addresses are masked, wherever in a text they are."""

from __future__ import annotations

import pytest

from multilane.secret import without_credentials

MASKED = {
    "s3://AKIA:SECRET@bucket/audit": "s3://***@bucket/audit",
    "s3://AKIA:SEC/RET+==@bucket/audit?region=eu-west-1": "s3://***@bucket/audit?region=eu-west-1",
    "s3://AKIA:SEC@RET@bucket/audit": "s3://***@bucket/audit",
    "https://SECRET@host/path": "https://***@host/path",
    "abfss://box@account.dfs.example/p?sas_token=SECRET": "abfss://box@account.dfs.example/p?sas_token=***",
    "abfss://box:SECRET@account.dfs.example/p": "abfss://***@account.dfs.example/p",
    "s3://b/p?X-Amz-Signature=SECRET&x=1#f": "s3://b/p?X-Amz-Signature=***&x=1#f",
    "s3://b/p?a=1&secret_key=SECRET&access_key=SECRET": "s3://b/p?a=1&secret_key=***&access_key=***",
    "sc://host:15002/;token=SECRET;use_ssl=true": "sc://host:15002/;token=***;use_ssl=true",
    "Cannot parse 's3://a:SECRET@b' and s3a://c:SECRET@d: no": "Cannot parse 's3://***@b' and s3a://***@d: no",
}
AS_THEY_ARE = [
    "",
    "/var/audit",
    "hdfs://name:8020/user/x",
    "s3://bucket/key=1/day=2026-01-01",
    "abfss://box@account.dfs.example/p",
    "mail me@example.org, password=x",
    "spark://a:7077,b:7077",
]


@pytest.mark.parametrize("text", MASKED)
def test_credentials_are_masked(text):
    assert without_credentials(text) == MASKED[text]
    assert "SECRET" not in without_credentials(text)


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_the_rest_stays(text):
    assert without_credentials(text) == text
