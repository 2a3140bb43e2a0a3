//! Where names are defined: paths are followed through imports and re-exports to the file that has the definition.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Modules, Segments};

/// The names that a file takes from another, by both files' places.
pub type Uses = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What a path leads to, other than a module.
#[derive(Debug)]
struct Definition {
    module: usize,
    name: String,
}

/// The imports that were followed on the way to a name, by module and place, so that none is followed in a circle.
type Followed = Vec<(usize, usize)>;

impl Modules {
    /// All names that files take from each other. A module's own name is none of them, nor is one that is only passed
    /// on.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (place, module) in self.modules.iter().enumerate() {
            let imports = module.imports.iter();
            let imports = imports.filter(|import| !import.is_reexport && import.name.is_some());
            let paths = imports.map(|import| &import.path).chain(&module.mentions);
            for path in paths {
                let found = self.resolve(place, path, &mut Followed::new());
                if let Some(Definition { module: of, name }) = found
                    && let Some(of) = self.modules.get(of)
                    && of.file != module.file
                {
                    uses.entry((module.file, of.file)).or_default().insert(name);
                }
            }
        }
        uses
    }

    /// What a path means in the module `from`. Names of other crates lead nowhere.
    fn resolve(&self, from: usize, path: &[String], followed: &mut Followed) -> Option<Definition> {
        let mut module = from;
        let mut rest = path;
        while let Some((first, behind)) = rest.split_first() {
            module = match first.as_str() {
                "crate" => 0,
                "self" => module,
                "super" => self.modules.get(module)?.parent,
                _ => return self.resolve_in(module, first, behind, followed),
            };
            rest = behind;
        }
        None
    }

    /// What `name`, and `behind` it, mean among the names of a module.
    fn resolve_in(
        &self,
        place: usize,
        name: &str,
        behind: &[String],
        followed: &mut Followed,
    ) -> Option<Definition> {
        let module = self.modules.get(place)?;
        // A module and a function may have the same name; only the module has names in it.
        if let Some(child) = module.children.get(name)
            && let Some((next, behind)) = behind.split_first()
        {
            return self.resolve_in(*child, next, behind, followed);
        }
        if module.definitions.contains(name) {
            return Some(Definition {
                module: place,
                name: name.to_owned(),
            });
        }
        let imports = module.imports.iter().enumerate();
        let of_name = imports
            .clone()
            .filter(|(_, import)| import.name.as_deref() == Some(name));
        let of_all = imports.filter(|(_, import)| import.name.is_none());
        for (index, import) in of_name.chain(of_all) {
            if followed.contains(&(place, index)) {
                continue;
            }
            followed.push((place, index));
            let mut path: Segments = import.path.clone();
            if import.name.is_none() {
                path.push(name.to_owned());
            }
            path.extend(behind.iter().cloned());
            let found = self.resolve(place, &path, followed);
            followed.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
