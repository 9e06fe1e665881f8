"""The forms of the device flow (RFC 8628), as models to make their schemas from."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class DeviceCodeForm(BaseModel):
    """RFC 8628, 3.1."""

    client_id: Annotated[str, Field(min_length=1, description="Name of the node's software, such as `nexus-agent`.")]
    public_key: Annotated[
        str, Field(pattern="^[0-9a-fA-F]{64}$", description="The node's Ed25519 public key, hexadecimal.")
    ]
    name: Annotated[str, Field(description="What the node calls itself; its owner sees it and may change it.")] = ""


class DeviceTokenForm(BaseModel):
    """RFC 8628, 3.4."""

    client_id: Annotated[str, Field(min_length=1, description="As when the code was asked for.")]
    grant_type: Annotated[Literal["urn:ietf:params:oauth:grant-type:device_code"], Field(description="Always this.")]
    device_code: Annotated[str, Field(min_length=1, description="From the answer to the first question.")]
    signature: Annotated[
        str,
        Field(min_length=1, description="Ed25519 signature over both codes and `verification_uri`, base64url."),
    ]
