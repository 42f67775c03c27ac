"""Writes mcp/transcript.jsonl: what the official Python SDK of the Model Context Protocol and `tandem mcp` say to each
other over stdio, one line a message. Asks the same over HTTP, and fails where the answers differ or are not what they
must be.

Needs mcp 2.3 from PyPI, and sandboxes.  python tests/golden/make_mcp.py build/release/bin/tandem
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

TRANSCRIPT = pathlib.Path(__file__).parent / "mcp" / "transcript.jsonl"
# tests/envs/mcp_command_test.cpp begins with the same file.
FILES = {"a.txt": "one\n"}
CALLS = [
    ("read_file", {"target_file": "a.txt"}),
    ("run_terminal_cmd", {"command": "mkdir sub; cd sub; export GREETING='hello ü'; echo made; exit 3"}),
    ("run_terminal_cmd", {"command": "pwd; echo $GREETING"}),
    ("search_replace", {"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
    ("read_file", {"target_file": "none.txt"}),
    ("read_file", {"target_fiel": "a.txt"}),
]


def relay(log, command):
    """Runs `command` between its client and itself, and writes down what passes."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lock = threading.Lock()

    def carry(source, target, who):
        for line in iter(source.readline, b""):
            with lock, open(log, "ab") as file:
                file.write(json.dumps({who: line.decode().rstrip("\r\n")}, ensure_ascii=False).encode() + b"\n")
            target.write(line)
            target.flush()
        target.close()

    back = threading.Thread(target=carry, args=(server.stdout, sys.stdout.buffer, "server"))
    back.start()
    carry(sys.stdin.buffer, server.stdin, "client")
    back.join()
    sys.exit(server.wait())


async def talk(transport, mode):
    from mcp import MCPError
    from mcp.client.client import Client

    said = []
    async with Client(transport, mode=mode) as client:
        said.append(client.protocol_version)
        said.append(sorted(tool.name for tool in (await client.list_tools()).tools))
        for name, arguments in CALLS:
            result = await client.call_tool(name, arguments)
            said.append([result.is_error, [content.text for content in result.content]])
        try:
            await client.call_tool("reed_file", {})
        except MCPError as error:
            said.append([error.code, error.message])
        await client.send_ping()
    return said


def workspace():
    folder = tempfile.TemporaryDirectory()
    for name, content in FILES.items():
        pathlib.Path(folder.name, name).write_text(content)
    os.chmod(folder.name, 0o777)
    return folder


async def over_stdio(tandem, log, mode):
    from mcp.client.stdio import StdioServerParameters, stdio_client

    with workspace() as folder:
        command = [__file__, "--relay", str(log), tandem, "mcp", "--workspace", folder]
        said = await talk(stdio_client(StdioServerParameters(command=sys.executable, args=command)), mode)
        assert pathlib.Path(folder, "a.txt").read_text() == "two\n"
        return said


async def over_http(tandem, mode):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    with workspace() as folder:
        command = [tandem, "mcp", "--workspace", folder, "--http", "0", "--json"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            where = json.loads(server.stdout.readline())
            headers = {"Authorization": f"Bearer {where['token']}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
                return await talk(streamable_http_client(where["url"], http_client=client), mode)
        finally:
            server.terminate()
            assert server.wait(10) == 0


async def main(tandem):
    TRANSCRIPT.parent.mkdir(exist_ok=True)
    TRANSCRIPT.unlink(missing_ok=True)
    said = await over_stdio(tandem, TRANSCRIPT, "legacy")
    with tempfile.TemporaryDirectory() as folder:
        others = {
            "stdio, asked for the newest first": await over_stdio(tandem, pathlib.Path(folder, "log"), "auto"),
            "HTTP": await over_http(tandem, "legacy"),
            "HTTP, asked for the newest first": await over_http(tandem, "auto"),
        }
    for way, answers in others.items():
        assert answers == said, f"{way}: {answers}\nbut over stdio: {said}"
    assert said[0] == "2025-11-25", said[0]
    assert said[2] == [False, ["     1|one\n"]], said[2]
    assert said[4] == [False, ["/workspace/sub\nhello ü\n"]], said[4]
    assert [error for error, _ in said[2:-1]] == [False, False, False, False, True, True], said
    assert said[-1][0] == -32602, said[-1]
    print(f"{len(TRANSCRIPT.read_text().splitlines())} messages; the same over stdio and HTTP")


if sys.argv[1] == "--relay":
    relay(sys.argv[2], sys.argv[3:])
asyncio.run(main(os.path.abspath(sys.argv[1])))
