//! Reads the configuration of another server and writes one for Longshore, with a report on every setting.
//!
//! | format | server | grammar |
//! |---|---|---|
//! | [`Format::Scst`] | SCST | `scst.conf`: today's blocks, and the sections of the procfs era |
//! | [`Format::Tgt`] | tgt | `targets.conf`: a subset of Config::General |
//! | [`Format::Lio`] | LIO | `saveconfig.json` of targetcli |
//! | [`Format::Nvmet`] | nvmet | JSON of nvmetcli |
//! | [`Format::Spdk`] | SPDK | JSON of `save_config`: a list of calls, carried out in order |
//! | [`Format::Istgt`] | istgt | `istgt.conf` and `auth.conf` |
//!
//! Nothing is opened or started here: text goes in, text comes out. Each setting of the source ends with a
//! [`Verdict`]: mapped, same as the default, ignored or refused. A setting that no importer knows is refused, so that
//! none is lost in silence.

#![forbid(unsafe_code)]

mod configuration;
mod istgt;
mod json;
mod lio;
mod nvmet;
mod report;
mod scst;
mod source;
mod spdk;
mod tgt;
mod values;
mod words;

#[cfg(test)]
mod tests;

pub use configuration::{Configuration, Imported, SecretFile};
pub use report::{Entry, Report, Verdict};
pub use source::{Format, ImportError, Options, SOURCE_BYTES_MAX, Source};

/// Reads a source.
///
/// # Errors
/// Text that its grammar does not allow. Settings without an equivalent are no errors, but [refused](Verdict::Refused).
pub fn import(
    format: Format,
    source: &Source,
    options: &Options<'_>,
) -> Result<Imported, ImportError> {
    let sources = [Some(source), options.authentication.as_ref()];
    for source in sources.into_iter().flatten() {
        if source.text.len() > SOURCE_BYTES_MAX {
            return Err(ImportError::TooLong {
                name: source.name.clone(),
                bytes: source.text.len(),
            });
        }
    }
    let mut draft = configuration::Draft::new(source);
    match format {
        Format::Scst => scst::read(source, options, &mut draft)?,
        Format::Tgt => tgt::read(source, options, &mut draft)?,
        Format::Lio => lio::read(source, &mut draft)?,
        Format::Nvmet => nvmet::read(source, &mut draft)?,
        Format::Spdk => spdk::read(source, &mut draft)?,
        Format::Istgt => istgt::read(source, options, &mut draft)?,
    }
    Ok(draft.finish())
}
