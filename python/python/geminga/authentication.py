"""How a client proves who it is.

>>> AuthenticationToken("secret")
AuthenticationToken(***)
"""


class Authentication:
    """The base of authentications; made directly, it stands for a C++ plug-in, which this client cannot load."""

    def __init__(self, dynamicLibPath, authParamsString):
        raise NotImplementedError("authentication plug-ins are not supported by this version of geminga")

    def __repr__(self):
        return f"{type(self).__name__}(***)"


class AuthenticationToken(Authentication):
    """A token, such as a JWT: a str, or a function that returns one.

    A function is called for each connection and whenever the broker asks again, on a thread of the client. Raises ValueError for
    anything else.
    """

    def __init__(self, token):
        if not (isinstance(token, str) or callable(token)):
            raise ValueError("Argument token is expected to be of type 'str' or a function returning 'str'")
        self._credentials = ("token", token)


class AuthenticationTLS(Authentication):
    """A client certificate and its key, as paths of PEM files; read anew for each connection."""

    def __init__(self, certificate_path, private_key_path):
        for name, path in (("certificate_path", certificate_path), ("private_key_path", private_key_path)):
            if not isinstance(path, str):
                raise ValueError(f"Argument {name} is expected to be of type 'str' and not '{type(path).__name__}'")
        self._credentials = ("tls", (certificate_path, private_key_path))


class AuthenticationAthenz(Authentication):
    """Athenz; not in this version."""

    def __init__(self, auth_params_string):
        raise NotImplementedError("AuthenticationAthenz is not supported by this version of geminga")


class AuthenticationOauth2(Authentication):
    """OAuth 2.0 client credentials; not in this version."""

    def __init__(self, auth_params_string):
        raise NotImplementedError("AuthenticationOauth2 is not supported by this version of geminga")


class AuthenticationBasic(Authentication):
    """User name and password; not in this version."""

    def __init__(self, username=None, password=None, method="basic", auth_params_string=None):
        raise NotImplementedError("AuthenticationBasic is not supported by this version of geminga")
