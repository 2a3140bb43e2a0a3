//! A document of a probe, from a file or by probing.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use longshore_bench::medium::Medium;
use longshore_bench::watch::Interrupt;
use longshore_model::probe::{DOCUMENT_MAX, Probe};

use crate::error::Error;
use crate::options::{Options, Watch};
use crate::probing::probe;

/// Reads the document if the path is that of one, and probes everything else.
///
/// # Errors
/// The document is none, or the volume cannot be probed.
pub fn obtain(
    medium: &Medium,
    options: Options,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<Probe, Error> {
    if let Medium::Local(path) = medium
        && let Some(document) = document(path)?
    {
        return Ok(document);
    }
    probe(medium, options, interrupt, watch)
}

/// The document in a file. `None`: it begins as no document does, as files and devices with blocks do, or there is none.
///
/// # Errors
/// The file cannot be read, or begins as a document and is none.
pub fn document(path: &Path) -> Result<Option<Probe>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        // The probe says what to do about it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes != b"{" {
        return Ok(None);
    }
    let most = u64::try_from(DOCUMENT_MAX).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    let document = Probe::parse(&bytes).map_err(|source| Error::Document {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Unwatched;

    fn obtained(content: &[u8]) -> Result<Probe, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        obtain(
            &Medium::Local(path),
            Options {
                time: std::time::Duration::from_millis(200),
                ..Options::default()
            },
            &Interrupt::default(),
            &mut Unwatched,
        )
    }

    #[test]
    fn a_document_is_read_and_anything_else_is_measured() {
        let saved = obtained(&[0; 1 << 20]).unwrap();
        assert_eq!(saved.subject.volume_bytes, 1 << 20);
        let again = obtained(&saved.to_json()).unwrap();
        assert_eq!(
            (again.made_ms, again.subject),
            (saved.made_ms, saved.subject)
        );
        assert_eq!(again.points.len(), saved.points.len());
    }

    #[test]
    fn what_begins_as_a_document_and_is_none_is_refused() {
        let error = obtained(b"{\"version\": 1").unwrap_err();
        assert!(matches!(error, Error::Document { .. }), "{error}");
        let error = obtained(b"{\"version\": 999}").unwrap_err();
        assert!(error.to_string().contains("999"), "{error}");
    }
}
