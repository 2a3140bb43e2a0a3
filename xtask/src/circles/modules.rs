//! The modules of a crate: the names that each defines, imports and mentions. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Macro, Meta, UseTree, Visibility};

/// The segments of a path, as written.
pub type Segments = Vec<String>;

/// One module, or what an inline module has.
#[derive(Debug, Default)]
pub struct Module {
    /// Its place among the crate's files.
    pub file: usize,
    /// Its place among the crate's modules; the root is its own parent.
    pub parent: usize,
    pub children: BTreeMap<String, usize>,
    pub definitions: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// Paths that its code mentions.
    pub mentions: BTreeSet<Segments>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub struct Import {
    pub path: Segments,
    /// `None` stands for all names of the path.
    pub name: Option<String>,
    /// Whether it passes the name on to others and is no use of its own.
    pub is_reexport: bool,
}

/// The files and modules of one crate. The first module is the root.
#[derive(Debug, Default)]
pub struct Modules {
    pub files: Vec<PathBuf>,
    pub modules: Vec<Module>,
}

impl Modules {
    /// Reads the file `root` and those of its modules. `read` gives the text of a file if it exists.
    pub fn read(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Result<Self> {
        let mut crate_ = Self::default();
        let folder = root.parent().context("a root has a folder")?;
        crate_.add_file(root, folder, 0, read)?;
        Ok(crate_)
    }

    /// Adds the module that is the file `path`. Files of its children are below `folder`.
    fn add_file(
        &mut self,
        path: &Path,
        folder: &Path,
        parent: usize,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Result<usize> {
        let text = read(path).with_context(|| format!("read {}", path.display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
        self.files.push(path.to_owned());
        let file = self.files.len() - 1;
        self.add_module(&syntax.items, file, folder, parent, read)
    }

    fn add_module(
        &mut self,
        items: &[Item],
        file: usize,
        folder: &Path,
        parent: usize,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Result<usize> {
        let place = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        let mut collector = Collector::default();
        let mut children = BTreeMap::new();
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            let Item::Mod(module) = item else {
                collector.definitions.extend(defined(item));
                collector.visit_item(item);
                continue;
            };
            let name = module.ident.unraw().to_string();
            let below = folder.join(&name);
            let child = match &module.content {
                Some((_, items)) => self.add_module(items, file, &below, place, read)?,
                None => {
                    let candidates = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
                    let Some(path) = candidates.iter().find(|path| read(path).is_some()) else {
                        let of = self.files.get(file).map(|path| path.display().to_string());
                        bail!("{}: no file of the module {name}", of.unwrap_or_default());
                    };
                    self.add_file(path, &below, place, read)?
                }
            };
            children.insert(name, child);
        }
        if let Some(module) = self.modules.get_mut(place) {
            module.children = children;
            module.definitions = collector.definitions;
            module.imports = collector.imports;
            module.mentions = collector.mentions;
        }
        Ok(place)
    }
}

/// The name that an item defines, where others can name it.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.unraw().to_string())
}

/// Gathers the imports and the paths of a module's items.
#[derive(Debug, Default)]
struct Collector {
    definitions: BTreeSet<String>,
    imports: Vec<Import>,
    mentions: BTreeSet<Segments>,
}

impl Collector {
    fn import(&mut self, tree: &UseTree, before: &Segments, is_reexport: bool) {
        let with = |name: &syn::Ident| {
            let mut path = before.clone();
            let name = name.unraw().to_string();
            if name != "self" || path.is_empty() {
                path.push(name);
            }
            path
        };
        let (path, name) = match tree {
            UseTree::Path(part) => return self.import(&part.tree, &with(&part.ident), is_reexport),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, is_reexport);
                }
                return;
            }
            UseTree::Name(part) => {
                let path = with(&part.ident);
                (path.clone(), path.last().cloned())
            }
            UseTree::Rename(part) => (with(&part.ident), Some(part.rename.unraw().to_string())),
            UseTree::Glob(_) => (before.clone(), None),
        };
        self.imports.push(Import {
            path,
            name,
            is_reexport,
        });
    }

    /// Paths among the tokens of a macro, which have no syntax of their own.
    fn mention_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.mentions.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.unraw().to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.mentions.insert(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.mention_tokens(group.stream());
                    }
                }
            }
        }
        self.mentions.insert(path);
        self.mentions.remove(&Segments::new());
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !asks_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &Segments::new(), is_reexport);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let segments = segments.map(|segment| segment.ident.unraw().to_string());
        self.mentions.insert(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.visit_path(&invocation.path);
        self.mention_tokens(invocation.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    asks_for_tests(attributes)
}

/// Whether there is `#[test]`, or a `#[cfg(…)]` with `test` that is not behind a `not`.
fn asks_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => mentions_test(list.tokens.clone()),
        _ => false,
    })
}

fn mentions_test(predicate: TokenStream) -> bool {
    let mut is_negated = false;
    for token in predicate {
        match token {
            TokenTree::Ident(ident) if ident == "test" => return true,
            TokenTree::Ident(ident) => is_negated = ident == "not",
            TokenTree::Group(group) if !is_negated && mentions_test(group.stream()) => return true,
            _ => {}
        }
    }
    false
}
