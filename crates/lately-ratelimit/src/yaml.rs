//! A YAML file as a tree of nodes, with the place of each. What a file may make the parser hold is bounded: nodes, their
//! depth, and what aliases stand for.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use crate::error::{Place, Problem};
use crate::limits::{MAX_YAML_DEPTH, MAX_YAML_NODES};

/// A scalar, a list or a map.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) at: Place,
    pub(crate) kind: Kind,
    /// It and all below it, with all that aliases stand for.
    nodes: usize,
    /// Lists and maps within each other, itself included.
    depth: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Scalar {
        text: Box<str>,
        /// Without quotes: it may be a number, a boolean or nothing.
        is_plain: bool,
    },
    List(Vec<Rc<Node>>),
    /// A key and its value, in turns.
    Map(Vec<Rc<Node>>),
}

/// A list or a map whose end was not read yet.
struct Open {
    at: Place,
    is_map: bool,
    anchor: usize,
    children: Vec<Rc<Node>>,
    nodes: usize,
    depth: usize,
}

/// Reads nodes from the events of the parser.
struct Reader<'b> {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    /// How many more nodes the files may have.
    left_nodes: &'b mut usize,
}

/// The only document of a file, or `None` if it has none. `left_nodes` is how many more nodes files may have.
pub(crate) fn parse(text: &str, left_nodes: &mut usize) -> Result<Option<Rc<Node>>, Problem> {
    let mut parser = Parser::new(StrInput::new(text));
    let mut reader = Reader { open: Vec::new(), anchors: HashMap::new(), root: None, left_nodes };
    while let Some(event) = parser.next_event() {
        let (event, span) = event
            .map_err(|error| Problem::new(place(error.marker()), format!("not YAML: {}", error.info())))?;
        reader.take(event, place(&span.start))?;
    }
    Ok(reader.root)
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

impl Reader<'_> {
    fn take(&mut self, event: Event<'_>, at: Place) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, at)?;
                let is_text = check_tag(tag.as_deref(), at)?;
                let is_plain = style == ScalarStyle::Plain && !is_text;
                let kind = Kind::Scalar { text: text.into(), is_plain };
                self.add(Rc::new(Node { at, kind, nodes: 1, depth: 0 }), anchor)
            }
            Event::SequenceStart(anchor, tag) => self.open(at, anchor, tag.as_deref(), false),
            Event::MappingStart(anchor, tag) => self.open(at, anchor, tag.as_deref(), true),
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { at, is_map, anchor, children, nodes, depth } =
                    self.open.pop().expect("the parser ends what it began");
                let kind = if is_map { Kind::Map(children) } else { Kind::List(children) };
                self.add(Rc::new(Node { at, kind, nodes, depth: depth + 1 }), anchor)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| Problem::new(at, "an alias within its own anchor"))?;
                self.count(node.nodes, at)?;
                self.check_depth(self.open.len() + node.depth, at)?;
                self.add(node, 0)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Problem::new(at, "a second document: a file has one"))
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => Ok(()),
        }
    }

    fn open(&mut self, at: Place, anchor: usize, tag: Option<&Tag>, is_map: bool) -> Result<(), Problem> {
        self.count(1, at)?;
        check_tag(tag, at)?;
        self.check_depth(self.open.len() + 1, at)?;
        self.open.push(Open { at, is_map, anchor, children: Vec::new(), nodes: 1, depth: 0 });
        Ok(())
    }

    /// Adds a node to the list or map that is open.
    fn add(&mut self, node: Rc<Node>, anchor: usize) -> Result<(), Problem> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.open.last_mut() {
            Some(open) => {
                open.nodes += node.nodes;
                open.depth = open.depth.max(node.depth);
                open.children.push(node);
            }
            None => self.root = Some(node),
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Place) -> Result<(), Problem> {
        *self.left_nodes = self.left_nodes.checked_sub(nodes).ok_or_else(|| {
            let message = format!(
                "too much YAML: the files together have at most {MAX_YAML_NODES} scalars, lists and maps, and an alias counts as all that it stands for"
            );
            Problem::new(at, message)
        })?;
        Ok(())
    }

    fn check_depth(&self, depth: usize, at: Place) -> Result<(), Problem> {
        if depth <= MAX_YAML_DEPTH {
            return Ok(());
        }
        Err(Problem::new(
            at,
            format!("nested too deep: at most {MAX_YAML_DEPTH} lists and maps within each other"),
        ))
    }
}

/// Whether a tag makes a scalar a text. Other tags of the core schema change nothing that counts here.
fn check_tag(tag: Option<&Tag>, at: Place) -> Result<bool, Problem> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(_) => Err(Problem::new(at, "a tag: remove it")),
    }
}
