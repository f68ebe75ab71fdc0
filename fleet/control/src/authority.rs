//! The fleet's own authority, and the certificate of its server.

use crate::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The files of an authority and of a server in PEM.
pub struct Made {
    pub authority: String,
    pub authority_key: String,
    pub server: String,
    pub server_key: String,
}

/// Makes an authority and the certificate of a server with these names or addresses.
///
/// # Errors
///
/// Returns an error if a name is neither one of a host nor an address.
pub fn make(fleet: &str, hosts: &[String]) -> Result<Made, Error> {
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("FLAME fleet {fleet}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = params.self_signed(&authority_key)?;
    let issuer = Issuer::new(params, &authority_key);
    let server_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "FLAME fleet server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = params.signed_by(&server_key, &issuer)?;
    Ok(Made {
        authority: authority.pem(),
        authority_key: authority_key.serialize_pem(),
        server: server.pem(),
        server_key: server_key.serialize_pem(),
    })
}
