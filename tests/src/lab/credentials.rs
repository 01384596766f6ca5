//! What a client shows to the secured broker and what it checks: certificates, keys, tokens.

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use ring::{hmac, rand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// PEM files and the secret that signs tokens, in one folder.
#[derive(Debug)]
pub struct Credentials {
    folder: PathBuf,
    secret: Vec<u8>,
}

impl Credentials {
    /// Those in `folder`, made where there are none yet.
    ///
    /// Errors: the folder cannot be read or written.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let secret = folder.join("token.secret");
        if !secret.exists() {
            std::fs::create_dir_all(folder)?;
            make(folder).context("cannot make the certificates")?;
            let random: rand::Random<[u8; 32]> =
                rand::generate(&rand::SystemRandom::new()).ok().context("the system has no random bytes")?;
            // Last, since its presence says that all is there.
            std::fs::write(&secret, random.expose())?;
        }
        Ok(Self { folder: folder.to_path_buf(), secret: std::fs::read(secret)? })
    }

    /// The certificate of the authority that signed the other two.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.cert.pem")
    }

    /// For `localhost` and 127.0.0.1.
    pub fn broker_certificate(&self) -> PathBuf {
        self.folder.join("broker.cert.pem")
    }

    /// PKCS #8.
    pub fn broker_key(&self) -> PathBuf {
        self.folder.join("broker.key.pem")
    }

    /// A client's certificate; its common name, `admin`, is the role.
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.cert.pem")
    }

    /// PKCS #8.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key.pem")
    }

    /// A token (HS256) for a role; `admin` is the superuser. With a life, it expires that long from now.
    pub fn token(&self, role: &str, life: Option<Duration>) -> String {
        let mut claims = json!({ "sub": role });
        if let Some(life) = life {
            let end = SystemTime::now() + life;
            let seconds = end.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            claims["exp"] = seconds.into();
        }
        let encode = |bytes: &[u8]| general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let header = json!({ "alg": "HS256" });
        let body =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.secret), body.as_bytes());
        format!("{body}.{}", encode(signature.as_ref()))
    }

    pub(super) fn secret_base64(&self) -> String {
        general_purpose::STANDARD.encode(&self.secret)
    }
}

fn make(folder: &Path) -> Result<()> {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text);
    let authority_key = KeyPair::generate()?;
    let mut authority = named("lab authority", &[])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.cert.pem", authority.self_signed(&authority_key)?.pem())?;
    let issuer = Issuer::new(authority, authority_key);
    let broker = (ExtendedKeyUsagePurpose::ServerAuth, "localhost", &["localhost", "127.0.0.1"][..]);
    let client = (ExtendedKeyUsagePurpose::ClientAuth, "admin", &["admin"][..]);
    for (file, (usage, name, alternatives)) in [("broker", broker), ("client", client)] {
        let key = KeyPair::generate()?;
        let mut params = named(name, alternatives)?;
        params.extended_key_usages = vec![usage];
        write(&format!("{file}.cert.pem"), params.signed_by(&key, &issuer)?.pem())?;
        write(&format!("{file}.key.pem"), key.serialize_pem())?;
    }
    Ok(())
}

fn named(common_name: &str, alternatives: &[&str]) -> Result<CertificateParams> {
    let names: Vec<String> = alternatives.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}
