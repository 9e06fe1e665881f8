"""Pages about the endpoints in Markdown, made from the document."""

import json
import re
from collections.abc import Iterator
from typing import Any

from cloud.api.openapi.words import name_of, words

Json = dict[str, Any]
NOTE = "<!-- Made by `make pages` from the OpenAPI document: change cloud/api/openapi instead. -->"
_REFERENCE = re.compile(r"#/components/(\w+)/(.+)")


def pages(document: Json) -> dict[str, str]:
    """File names with their text: one page for each operation, and an index."""
    found: dict[str, str] = {}
    groups: dict[str, list[tuple[str, str]]] = {each["name"]: [] for each in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            file = re.sub(r"(?<=[a-z])([A-Z])", r"-\1", operation["operationId"]).lower()
            found[f"{file}.md"] = _page(document, path, method.upper(), operation)
            groups[operation["tags"][0]].append((file, f"`{method.upper()} {path}`"))
    found["index.md"] = _index(document, groups)
    return found


def _index(document: Json, groups: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["# API reference", "", NOTE, "", *document["info"]["description"].strip().split("\n"), ""]
    lines += ["The same for programs: `GET /openapi.json`, or `nexus gateway openapi`.", ""]
    lines += ["| endpoint | |", "|---|---|"]
    for pages in groups.values():
        for file, endpoint in pages:
            summary = next(
                operation["summary"]
                for path, methods in document["paths"].items()
                for method, operation in methods.items()
                if f"`{method.upper()} {path}`" == endpoint
            )
            lines.append(f"| [{endpoint}]({file}.md) | {summary}. |")
    lines += ["", "```{toctree}", ":hidden:", ""]
    lines += [file for pages in groups.values() for file, _ in pages]
    return "\n".join([*lines, "```", ""])


def _page(document: Json, path: str, method: str, operation: Json) -> str:
    lines = [f"# {operation['summary']}", "", NOTE, "", f"    {method} {path}", "", operation["description"], ""]
    if operation.get("security") == []:
        lines += ["No key is needed.", ""]
    else:
        lines += [f"{_token(operation)} goes into the header `Authorization: Bearer …`.", ""]
    for place, title in (("path", "Path"), ("query", "Query"), ("header", "Headers")):
        if found := [each for each in operation.get("parameters", ()) if each["in"] == place]:
            lines += [f"## {title}", "", "| name | |", "|---|---|"]
            lines += [f"| `{each['name']}` | {each['description']} |" for each in found] + [""]
    if body := operation.get("requestBody"):
        lines += _body(document, operation, path, body["content"])
    lines += _answers(document, operation)
    return "\n".join(lines)


def _token(operation: Json) -> str:
    kinds = {name for each in operation.get("security", [{"key": []}]) for name in each}
    if kinds == {"session"}:
        return "The session's token"
    return "The key, or an operator's session's token," if "session" in kinds else "The key"


def _body(document: Json, operation: Json, path: str, contents: Json) -> list[str]:
    [(kind, content)] = contents.items()
    form = kind != "application/json"
    schemas = document["components"]["schemas"]
    top = name_of(content["schema"])
    told = ["A form (`application/x-www-form-urlencoded`):", ""] if form else []
    lines = ["## Body", "", *told, *_table(schemas[top])]
    for name in _below(schemas, top):
        lines += [f"### {name}", ""]
        if told := schemas[name].get("description"):
            lines += [told, ""]
        lines += _table(schemas[name])
    lines += ["## Examples", ""]
    for each in content["examples"].values():
        body = json.dumps(each["value"], ensure_ascii=False, indent=2)
        lines += [f"{each['summary']}:", "", "```json", body, "```", ""]
    first = next(iter(content["examples"].values()))["value"]
    lines += ["With curl:", "", "```sh", f"curl http://127.0.0.1:8080{path} \\"]
    if form:
        fields = [f"--data-urlencode '{name}={value}'" for name, value in first.items()]
        return [*lines, *(f"  {field} \\" for field in fields[:-1]), f"  {fields[-1]}", "```", ""]
    token = "my-session" if _token(operation) == "The session's token" else "my-key"
    headers = [] if operation.get("security") == [] else [f"-H 'Authorization: Bearer {token}'"]
    headers.append("-H 'Content-Type: application/json'")
    return [
        *lines,
        f"  {' '.join(headers)} \\",
        f"  -d '{json.dumps(first, ensure_ascii=False)}'",
        "```",
        "",
    ]


def _table(schema: Json) -> list[str]:
    if "properties" not in schema:
        return [words(schema), ""]
    lines = ["| field | value | default | |", "|---|---|---|---|"]
    required = schema.get("required", ())
    for name, each in sorted(schema["properties"].items(), key=lambda item: item[0] not in required):
        default = each.get("default")
        shown = "required" if name in required else "" if default is None else f"`{json.dumps(default)}`"
        lines.append(f"| `{name}` | {_cell(words(each))} | {shown} | {_cell(each.get('description', ''))} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _below(schemas: Json, top: str) -> list[str]:
    """Components that this one needs, itself not among them, in order of appearance."""
    order = [top]
    for name in order:
        order += [each for each in _references(schemas[name]) if each not in order]
    return order[1:]


def _references(value: Any) -> Iterator[str]:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(each, str) and (match := _REFERENCE.fullmatch(each)):
            yield match[2]
        yield from _references(each)


def _answers(document: Json, operation: Json) -> list[str]:
    lines: list[str] = []
    errors: list[str] = []
    for status, response in operation["responses"].items():
        if "$ref" in response:
            told = document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
            errors.append(f"| {status} | {told['description']} |")
            continue
        lines += [f"## Answer {status}", "", response["description"], ""]
        for kind, content in response["content"].items():
            schema = content["schema"]
            lines += [f"`{kind}`" + (f": a `{name_of(schema)}`" if "$ref" in schema else ""), ""]
            if told := schema.get("description"):
                lines += [told, ""]
            for name, each in content.get("examples", {}).items():
                if summary := each.get("summary"):
                    lines += [f"{summary}:", ""]
                value = each["value"]
                text = value.strip() if name == "stream" else json.dumps(value, ensure_ascii=False, indent=2)
                lines += ["```text" if name == "stream" else "```json", text, "```", ""]
    return [*lines, "## Errors", "", "| status | |", "|---|---|", *errors, ""]
