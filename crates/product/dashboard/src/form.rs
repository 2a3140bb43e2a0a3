//! Forms that change something. The script sends them to the API, and shows what the API answers where it belongs.
//!
//! | attribute | meaning |
//! |---|---|
//! | `data-method`, `data-path` | the request; `{x}` is filled in from the field `x` |
//! | `data-create` | refuse to change what is there (`If-None-Match: *`) |
//! | `data-next` | the page to go to after it; `{x}` as above. Without it, the page shows the new state |
//! | field `data-in` | `path`, `query`, or `body` with `data-type` `text`, `number`, `flag`, `names` |

use maud::{Markup, html};

/// A change that a form asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// Unique on its page.
    pub id: &'a str,
    pub title: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub next: Option<&'a str>,
    pub creates: bool,
    /// The word on the button.
    pub verb: &'a str,
    /// It takes something away.
    pub is_dangerous: bool,
}

impl Default for Change<'_> {
    fn default() -> Self {
        Self {
            id: "",
            title: "",
            method: "PUT",
            path: "",
            next: None,
            creates: false,
            verb: "Save",
            is_dangerous: false,
        }
    }
}

/// What a field is and where its value goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    Text,
    Number,
    /// One of these values, with their names.
    Choice(&'a [(&'a str, &'a str)]),
    /// One of these names, or any other.
    Name(&'a [String]),
    Flag,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub key: &'a str,
    pub label: &'a str,
    pub hint: &'a str,
    pub place: &'a str,
    pub kind: Kind<'a>,
    pub value: &'a str,
    pub is_required: bool,
    /// Only shown while the field `backend` has one of these values.
    pub backends: &'a str,
}

impl<'a> Field<'a> {
    pub(crate) const fn new(key: &'a str, label: &'a str, place: &'a str, kind: Kind<'a>) -> Self {
        Self {
            key,
            label,
            hint: "",
            place,
            kind,
            value: "",
            is_required: false,
            backends: "",
        }
    }

    pub(crate) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    pub(crate) const fn hint(mut self, hint: &'a str) -> Self {
        self.hint = hint;
        self
    }

    pub(crate) const fn value(mut self, value: &'a str) -> Self {
        self.value = value;
        self
    }

    pub(crate) const fn of_backends(mut self, backends: &'a str) -> Self {
        self.backends = backends;
        self
    }

    fn markup(&self, form: &str) -> Markup {
        let id = format!("{form}-{}", self.key);
        let (hint, error) = (format!("{id}-hint"), format!("{id}-error"));
        let described = if self.hint.is_empty() {
            error.clone()
        } else {
            format!("{hint} {error}")
        };
        let data_type = match self.kind {
            Kind::Number => "number",
            Kind::Flag => "flag",
            Kind::Text | Kind::Choice(_) | Kind::Name(_) => "text",
        };
        let backends = (!self.backends.is_empty()).then_some(self.backends);
        html! {
            div.field data-field=(self.key) data-backends=[backends] {
                @match self.kind {
                    Kind::Flag => {
                        label.flag for=(id) {
                            input id=(id) name=(self.key) type="checkbox" data-in=(self.place) data-type=(data_type) aria-describedby=(described);
                            " " (self.label)
                        }
                    }
                    Kind::Choice(values) => {
                        label for=(id) { (self.label) }
                        select id=(id) name=(self.key) data-in=(self.place) data-type=(data_type) aria-describedby=(described) {
                            @for (value, name) in values {
                                option value=(value) selected[*value == self.value] { (name) }
                            }
                        }
                    }
                    Kind::Text | Kind::Number | Kind::Name(_) => {
                        @let list = format!("{id}-list");
                        @let has_list = matches!(self.kind, Kind::Name(_));
                        @let numeric = matches!(self.kind, Kind::Number).then_some("numeric");
                        label for=(id) { (self.label) }
                        input id=(id) name=(self.key) type="text" value=(self.value) data-in=(self.place) data-type=(data_type)
                            inputmode=[numeric] list=[has_list.then_some(&list)]
                            required[self.is_required] autocomplete="off" spellcheck="false" autocapitalize="off"
                            aria-describedby=(described);
                        @if let Kind::Name(names) = self.kind {
                            datalist id=(list) { @for name in names { option value=(name) {} } }
                        }
                    }
                }
                @if !self.hint.is_empty() { p.hint id=(hint) { (self.hint) } }
                p.error id=(error) {}
            }
        }
    }
}

fn fields(change: &Change<'_>, all: &[Field<'_>]) -> Markup {
    html! { @for field in all { (field.markup(change.id)) } }
}

fn opening(change: &Change<'_>, content: &Markup) -> Markup {
    html! {
        form.change id=(change.id) data-needs-script="" data-method=(change.method) data-path=(change.path)
            data-next=[change.next] data-create[change.creates] novalidate {
            (content)
        }
    }
}

fn button(change: &Change<'_>) -> Markup {
    let class = if change.is_dangerous {
        "danger"
    } else {
        "primary"
    };
    html! { button class=(class) type="submit" { (change.verb) } }
}

/// A form within the page.
pub(crate) fn inline(change: &Change<'_>, all: &[Field<'_>]) -> Markup {
    let content = html! {
        @if !change.title.is_empty() { h3 { (change.title) } }
        div.fields { (fields(change, all)) div.field.end { (button(change)) } }
        p.problem role="alert" {}
    };
    opening(change, &content)
}

/// A form in a dialog, and the button that opens it.
pub(crate) fn dialog(change: &Change<'_>, opens: &str, text: &str, all: &[Field<'_>]) -> Markup {
    let (dialog, title) = (
        format!("{}-dialog", change.id),
        format!("{}-title", change.id),
    );
    let class = if change.is_dangerous {
        "danger quiet"
    } else {
        "primary"
    };
    let content = html! {
        h2 id=(title) { (change.title) }
        @if !text.is_empty() { p { (text) } }
        (fields(change, all))
        p.problem role="alert" {}
        div.buttons {
            (button(change))
            button type="button" data-close="" { "Cancel" }
        }
    };
    html! {
        button class=(class) type="button" data-needs-script="" data-opens=(dialog) aria-haspopup="dialog" { (opens) }
        dialog id=(dialog) aria-labelledby=(title) { (opening(change, &content)) }
    }
}

/// A button that asks for a change at once.
pub(crate) fn act(change: &Change<'_>) -> Markup {
    let content = html! {
        button.quiet type="submit" { (change.verb) }
        p.problem role="alert" {}
    };
    opening(change, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_label_and_a_place_for_its_error() {
        let change = Change {
            id: "create",
            title: "Create",
            ..Change::default()
        };
        let names = ["<a>".to_owned()];
        let field = Field::new("volume", "Volume", "body", Kind::Name(&names)).required();
        let text = inline(&change, &[field]).into_string();
        for part in [
            "<label for=\"create-volume\">",
            "id=\"create-volume-error\"",
            "aria-describedby=\"create-volume-error\"",
            "&lt;a&gt;",
            " required",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("<a>"));
    }
}
