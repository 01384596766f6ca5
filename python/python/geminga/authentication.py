"""How a client proves who it is.

>>> AuthenticationToken("secret")
AuthenticationToken(***)
"""


from __future__ import annotations

from collections.abc import Callable
from typing import Union

#: What the extension module takes: "token" with the token or what gives it, or "tls" with the paths of certificate and key.
Credentials = Union[tuple[str, Union[str, Callable[[], str]]], tuple[str, tuple[str, str]]]


class Authentication:
    """The base of authentications; made directly, it stands for a C++ plug-in, which this client cannot load."""

    _credentials: Credentials

    def __init__(self, dynamicLibPath: str, authParamsString: str) -> None:
        raise NotImplementedError("authentication plug-ins are not supported by this version of geminga")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class AuthenticationToken(Authentication):
    """A token, such as a JWT: a str, or a function that returns one.

    A function is called for each connection and whenever the broker asks again, on a thread of the client. Raises ValueError for
    anything else.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        if not (isinstance(token, str) or callable(token)):
            raise ValueError("Argument token is expected to be of type 'str' or a function returning 'str'")
        self._credentials = ("token", token)


class AuthenticationTLS(Authentication):
    """A client certificate and its key, as paths of PEM files; read anew for each connection."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        for name, path in (("certificate_path", certificate_path), ("private_key_path", private_key_path)):
            if not isinstance(path, str):
                raise ValueError(f"Argument {name} is expected to be of type 'str' and not '{type(path).__name__}'")
        self._credentials = ("tls", (certificate_path, private_key_path))


class AuthenticationAthenz(Authentication):
    """Athenz; not in this version."""

    def __init__(self, auth_params_string: str) -> None:
        raise NotImplementedError("AuthenticationAthenz is not supported by this version of geminga")


class AuthenticationOauth2(Authentication):
    """OAuth 2.0 client credentials; not in this version."""

    def __init__(self, auth_params_string: str) -> None:
        raise NotImplementedError("AuthenticationOauth2 is not supported by this version of geminga")


class AuthenticationBasic(Authentication):
    """User name and password; not in this version."""

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        raise NotImplementedError("AuthenticationBasic is not supported by this version of geminga")
