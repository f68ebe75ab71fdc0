use flame_source::SourceError;
use flame_source::live::Interface;
use flame_trust::Place;

/// Returns the place of an interface that was found, or of all interfaces.
///
/// # Errors
///
/// Returns an error if policies mean something else by the interface's name.
pub fn place_of(interface: &Interface) -> Result<Place, SourceError> {
    if interface.is_all() {
        return Ok(Place::all_interfaces());
    }
    let error = |reason: String| SourceError::Io {
        place: format!("interface {}", interface.name()),
        error: std::io::Error::other(reason),
    };
    Place::interface(interface.name()).map_err(error)
}
