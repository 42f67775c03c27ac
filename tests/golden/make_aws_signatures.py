#!/usr/bin/env python3
"""Signatures of requests to S3 by botocore, for tests/weights_sync/aws_signature_test.cpp.

    pip install botocore && python3 tests/golden/make_aws_signatures.py > tests/golden/aws_signatures.jsonl
"""
import datetime
import json
import random
import urllib.parse
from unittest import mock

from botocore import auth, awsrequest, credentials

random.seed(1)
HOSTS = ["s3.us-east-1.amazonaws.com", "127.0.0.1:9000", "minio.example.org"]
NAMES = ["bucket/prefix/0011223344556677/3-2-89abcdef01234567/0", "bucket/a b+c/ü~%/x", "b-1.2/x"]


def signed(method, host, name, body, region, session, at):
    key = credentials.Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session)
    url = f"https://{host}/{urllib.parse.quote(name, safe='/~')}"
    request = awsrequest.AWSRequest(method, url, data=body, headers={"Host": host})
    request.context["payload_signing_enabled"] = True
    now = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
    with mock.patch.object(auth, "get_current_datetime", return_value=now.replace(tzinfo=None)):
        auth.S3SigV4Auth(key, "s3", region).add_auth(request)
    return {k.lower(): v for k, v in request.headers.items()}


for i in range(24):
    method = ["GET", "PUT", "DELETE"][i % 3]
    body = random.randbytes(random.choice([0, 1, 1000])) if method == "PUT" else b""
    case = {"method": method, "host": HOSTS[i % len(HOSTS)], "name": NAMES[(i // 3) % len(NAMES)],
            "body": body.hex(), "region": ["us-east-1", "eu-central-2"][i % 2],
            "session": "FwoGZXIvYXdz//8=" if i % 4 == 3 else None, "at": 1767225600 + 86399 * i}
    headers = signed(method, case["host"], case["name"], body, case["region"], case["session"], case["at"])
    case["headers"] = {k: headers[k] for k in sorted(headers)}
    print(json.dumps(case, ensure_ascii=False))
