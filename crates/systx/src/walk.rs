//! The walk along a path: in the caller's root and working directory, with the caller's rights, through what
//! the transaction sees.
//!
//! Owns: [`Place`], a directory inside of the transaction or outside, and the rules of path_resolution(7):
//! symbolic links, `.` and `..`, mounts, trailing slashes. Guarantees: each directory that is passed is
//! searched with the caller's permission; a name inside is a fact, also if it is missing. Outside, the kernel
//! walks, one name at a time. Does not: open what it finds.

use crate::permission::{access, asks_for_a_list, follow, owner_may, SEARCH};
use crate::place::Place;
use crate::state::{Answer, Calling, Fault};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use systx_engine::acl::{self, Acl};
use systx_engine::outcome::VerbError;
use systx_engine::transaction::{Attr, Node};
use systx_os::outside::{self, Key, Outside};
use systx_os::{Errno, FileType, Os};

/// Most bytes of a path, without its NUL (PATH_MAX).
pub(crate) const PATH_BYTES_MAX: usize = 4095;
/// Most bytes of a name (NAME_MAX).
const NAME_BYTES_MAX: usize = 255;
/// Most symbolic links that one walk follows (MAXSYMLINKS).
const LINKS_MAX: u32 = 40;

/// Where a relative path begins.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// At the working directory of the calling thread, as of each call.
    WorkingDirectory,
    /// In this directory.
    At(Place),
}

/// The object of a name.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Inside { node: Node, attr: Attr, mount: u64 },
    Outside(Arc<Outside>),
}

impl Object {
    pub fn kind(&self) -> FileType {
        match self {
            Object::Inside { attr, .. } => FileType::from_mode(attr.mode).unwrap_or(FileType::File),
            Object::Outside(outside) => outside.kind(),
        }
    }
}

/// The end of a path.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The directory that holds the name.
    pub dir: Place,
    /// `None`: the path ends in `.` or `..`, or is a root; the object is `dir` itself.
    pub name: Option<Box<[u8]>>,
    /// `None`: the name is missing.
    pub object: Option<Object>,
    /// The path ends in a slash, so the object has to be a directory.
    pub slash: bool,
}

impl End {
    fn directory(dir: Place) -> End {
        End { dir, name: None, object: None, slash: true }
    }
}

/// Treatment of a symbolic link at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is followed.
    Follow,
    /// It is the object, unless a slash follows.
    Stay,
    /// It is the object. The path is that of a name which is to change, and may end in a slash, whatever the
    /// object is.
    Name,
}

/// Where on a path a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Middle,
    Last,
}

/// The rest of a path: names, and whether it ends in a slash.
struct Rest {
    names: VecDeque<Box<[u8]>>,
    slash: bool,
}

impl Rest {
    fn of(path: &[u8]) -> Rest {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(Box::from);
        Rest { names: names.collect(), slash: path.ends_with(b"/") }
    }

    /// Puts the target of a link before it.
    fn lead(&mut self, target: Rest) {
        if self.names.is_empty() {
            self.slash |= target.slash;
        }
        for name in target.names.into_iter().rev() {
            self.names.push_front(name);
        }
    }
}

impl Calling<'_> {
    /// Walks to the end of a path.
    ///
    /// # Errors
    /// Those of path_resolution(7).
    pub fn walk(&mut self, start: &Start, path: &[u8], last: Last) -> Answer<End> {
        match path {
            [] => return Err(Errno::NOENT.into()),
            path if path.contains(&0) => return Err(Errno::INVAL.into()),
            path if path.len() > PATH_BYTES_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ => {}
        }
        self.links = 0;
        let mut rest = Rest::of(path);
        let mut at = match (path.starts_with(b"/"), start) {
            (true, _) => self.mount_on_the_way(&mut rest, last)?,
            (false, Start::WorkingDirectory) => self.enter_working_directory()?,
            (false, Start::At(place)) => place.clone(),
        };
        loop {
            // Only slashes, or a mount point.
            let Some(name) = rest.names.pop_front() else { return Ok(End::directory(at)) };
            let is_last = rest.names.is_empty();
            self.may_search(&at)?;
            match &*name {
                b"." => {}
                b".." => at = self.parent(at)?,
                name if name.len() > NAME_BYTES_MAX => return Err(Errno::NAMETOOLONG.into()),
                _ => {
                    let found = self.step(&at, &name)?;
                    let follows = |object: &Object| {
                        let ends_here =
                            is_last && (last == Last::Name || (last == Last::Stay && !rest.slash));
                        object.kind() == FileType::Symlink && !ends_here
                    };
                    match found {
                        Some(link) if follows(&link) => {
                            let end = if is_last { Way::Last } else { Way::Middle };
                            let target = self.follow(&at, &link, end)?;
                            rest.lead(Rest::of(&target));
                            if target.starts_with(b"/") {
                                at = self.mount_on_the_way(&mut rest, last)?;
                            }
                        }
                        Some(object)
                            if is_last
                                && rest.slash
                                && last != Last::Name
                                && object.kind() != FileType::Directory =>
                        {
                            return Err(Errno::NOTDIR.into())
                        }
                        object if is_last => {
                            return Ok(End { dir: at, name: Some(name), object, slash: rest.slash })
                        }
                        None => return Err(Errno::NOENT.into()),
                        Some(object) => at = self.directory(&object)?,
                    }
                    continue;
                }
            }
            if is_last {
                return Ok(End::directory(at));
            }
        }
    }

    /// Walks to an object.
    ///
    /// # Errors
    /// `ENOENT` if it is missing.
    pub fn find(&mut self, start: &Start, path: &[u8], last: Last) -> Answer<Object> {
        let end = self.walk(start, path, last)?;
        match (end.name, end.object) {
            (_, Some(object)) => Ok(object),
            (None, None) => self.object_of(&end.dir),
            (Some(_), None) => Err(Errno::NOENT.into()),
        }
    }

    /// A directory as an object.
    pub fn object_of(&mut self, place: &Place) -> Answer<Object> {
        match place {
            Place::Inside { node, mount } => {
                let attr = self.state.engine.getattr(*node)?;
                Ok(Object::Inside { node: *node, attr, mount: *mount })
            }
            Place::Outside(fd) => Ok(Object::Outside(Arc::new(Outside::of(fd)?))),
        }
    }

    /// An object as a directory.
    pub fn directory(&mut self, object: &Object) -> Answer<Place> {
        match object {
            _ if object.kind() != FileType::Directory => Err(Errno::NOTDIR.into()),
            Object::Inside { node, mount, .. } => Ok(Place::Inside { node: *node, mount: *mount }),
            Object::Outside(outside) => self.enter(outside.fd().clone()),
        }
    }

    /// The access list of an object, if it may have a say in what the caller may do.
    pub fn list_of(&mut self, node: Node, attr: &Attr) -> Answer<Option<Acl>> {
        if !asks_for_a_list(self.caller_uid(), attr) {
            return Ok(None);
        }
        match self.state.engine.getxattr(node, acl::ACCESS) {
            Ok(value) => Ok(Acl::parse(&value)?),
            Err(VerbError::Os(Errno::NODATA | Errno::OPNOTSUPP)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks an access of the caller to an object of the transaction; `want` are bits of
    /// [`permission`](crate::permission).
    pub fn may(&mut self, node: Node, attr: &Attr, want: u32) -> Answer<()> {
        if owner_may(self.caller_uid(), attr, want) {
            return Ok(());
        }
        let list = self.list_of(node, attr)?;
        let caller = self.caller()?;
        Ok(access(&caller, attr, list.as_ref(), want)?)
    }

    fn may_search(&mut self, place: &Place) -> Answer<()> {
        // Outside, the kernel checks with each name.
        let Place::Inside { node, .. } = place else { return Ok(()) };
        let attr = self.state.engine.getattr(*node)?;
        self.may(*node, &attr, SEARCH)
    }

    /// Looks at one name.
    fn step(&mut self, at: &Place, name: &[u8]) -> Answer<Option<Object>> {
        let (node, mount) = match at {
            Place::Outside(dir) => {
                return match Outside::look(dir, name) {
                    Ok(found) => self.seen_outside(found).map(Some),
                    Err(Errno::NOENT) => Ok(None),
                    Err(errno) => Err(errno.into()),
                };
            }
            Place::Inside { node, mount } => (*node, *mount),
        };
        if let Some(covering) = self.mounted_at(node, mount, name)? {
            return Ok(Some(covering));
        }
        let Some((node, attr)) = self.lookup(node, name)? else { return Ok(None) };
        if let Some((node, attr)) = self.own_top(node, &attr, mount)? {
            return Ok(Some(Object::Inside { node, attr, mount }));
        }
        Ok(Some(Object::Inside { node, attr, mount }))
    }

    /// A user's directory that has an area of its own, as something is mounted below the one above: the same however it
    /// is reached.
    fn own_top(&mut self, node: Node, attr: &Attr, mount: u64) -> Answer<Option<(Node, Attr)>> {
        if self.shared.uid == 0 || FileType::from_mode(attr.mode) != Some(FileType::Directory) {
            return Ok(None);
        }
        let table = self.table()?;
        let index = self.state.engine.mount_of(node);
        let top = &self.state.mounts[index].top;
        if !table.bears(top) {
            return Ok(None);
        }
        let below = self.state.engine.path_of(node);
        let path = [top.strip_suffix(b"/").unwrap_or(top), b"/", &below].concat();
        let Some(site) = table.site(self.shared.uid, &path, mount).filter(|site| site.top == path) else {
            return Ok(None);
        };
        let ino = self.state.engine.ino(node);
        let Some(index) = self.serve(&site)? else { return Ok(None) };
        let root = self.state.engine.root(index);
        // Else it was made or moved there by the transaction.
        if self.state.engine.ino(root) != ino {
            return Ok(None);
        }
        Ok(Some((root, self.state.engine.getattr(root)?)))
    }

    /// The root of what is mounted over a name.
    fn mounted_at(&mut self, dir: Node, mount: u64, name: &[u8]) -> Answer<Option<Object>> {
        let table = self.table()?;
        if !table.may_be_a_point(name) {
            return Ok(None);
        }
        let path = self.path_on_file_system(dir, name)?;
        let Some(point) = table.on(mount, &path).map(|covering| covering.point.clone()) else {
            return Ok(None);
        };
        Ok(Some(Object::Outside(Arc::new(Outside::at(&point)?))))
    }

    /// Turns an object that the kernel has found into one of the transaction, if it is the first directory on the
    /// way that is served.
    fn seen_outside(&mut self, found: Outside) -> Answer<Object> {
        if found.kind() == FileType::Directory {
            let place = self.enter(found.fd().clone())?;
            if matches!(place, Place::Inside { .. }) {
                return self.object_of(&place);
            }
        }
        Ok(Object::Outside(Arc::new(found)))
    }

    /// The path of a name from the root of its file system.
    fn path_on_file_system(&self, dir: Node, name: &[u8]) -> Answer<Vec<u8>> {
        let engine = &self.state.engine;
        let open = &self.state.mounts[engine.mount_of(dir)];
        let below = engine.path_of(dir);
        let parts = [open.path.as_slice(), &below, name];
        Ok(parts.into_iter().filter(|part| !part.is_empty()).flat_map(|part| [b"/", part].concat()).collect())
    }

    /// The directory above a directory.
    fn parent(&mut self, at: Place) -> Answer<Place> {
        let (node, mount) = match &at {
            Place::Outside(dir) => {
                let above = outside::open_directory(dir, b"..")?;
                return self.enter(Arc::new(above));
            }
            Place::Inside { node, mount } => (*node, *mount),
        };
        if self.state.tops.get(&mount) == Some(&node) {
            let table = self.table()?;
            let point = &table.mount(mount).ok_or(Errno::STALE)?.point;
            if point == b"/" {
                return Ok(at);
            }
            let above =
                point.iter().rposition(|byte| *byte == b'/').map_or(&b"/"[..], |end| &point[..end.max(1)]);
            return self.enter(Arc::new(outside::open_at_path(above)?));
        }
        let index = self.state.engine.mount_of(node);
        if self.state.engine.root(index) == node {
            let root = &self.state.mounts[index].root;
            if self.shared.os.is_lost(root) {
                return Err(Errno::BADF.into());
            }
            let above = outside::open_directory(root, b"..")?;
            return self.enter(Arc::new(above));
        }
        Ok(Place::Inside { node: self.state.engine.parent(node), mount })
    }

    /// The target of a link, if the caller may follow it. What the machine protects is links at the end of a path, as
    /// may_follow_link in linux/fs is asked for those.
    fn follow(&mut self, at: &Place, link: &Object, way: Way) -> Answer<Vec<u8>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = match (at, link) {
            (Place::Inside { node: dir, .. }, Object::Inside { node, attr, .. }) => {
                if way == Way::Last {
                    let dir = self.state.engine.getattr(*dir)?;
                    let caller = self.caller()?;
                    follow(&caller, self.shared.protected, (dir.mode, dir.uid), attr.uid)?;
                }
                self.state.engine.readlink(*node)?
            }
            // The kernel would follow it with the same check, but reads it for anybody.
            (Place::Outside(dir), Object::Outside(outside)) => {
                if way == Way::Last {
                    let dir = Outside::of(dir)?;
                    let dir = dir.stat();
                    let caller = self.caller()?;
                    follow(&caller, self.shared.protected, (dir.mode, dir.uid), outside.stat().uid)?;
                }
                outside.target()?
            }
            (_, Object::Inside { node, .. }) => self.state.engine.readlink(*node)?,
            (_, Object::Outside(outside)) => outside.target()?,
        };
        if target.is_empty() {
            Err(Errno::NOENT.into())
        } else {
            Ok(target)
        }
    }

    /// Where an absolute path leads into the transaction: the last mount point on it. What is above on other
    /// file systems is neither read nor served; the kernel checks that the caller may pass it.
    ///
    /// A mount point has no symbolic link on its way, so the names before it are taken from the path.
    fn mount_on_the_way(&mut self, rest: &mut Rest, last: Last) -> Answer<Place> {
        let table = self.table()?;
        // Behind `..` the path is elsewhere. A name that is to change belongs to the directory above.
        let plain = rest.names.iter().take_while(|name| !matches!(&***name, b"." | b"..")).count();
        let plain = if last == Last::Name { plain.min(rest.names.len().saturating_sub(1)) } else { plain };
        let mut point = Vec::new();
        let mut found = None;
        for (n, name) in rest.names.iter().take(plain).enumerate() {
            point = [&point, &b"/"[..], name].concat();
            if table.may_be_a_point(name) && table.at(&point) {
                found = Some((n + 1, point.clone()));
            }
        }
        let Some((names, point)) = found else { return self.enter_path(b"/") };
        rest.names.drain(..names);
        self.enter_path(&point)
    }

    fn enter_path(&mut self, path: &[u8]) -> Answer<Place> {
        let key = outside::key_at(path)?;
        match self.state.entered.get(&key) {
            Some(known) => Ok(known.clone()),
            None => match self.enter_top(key)? {
                Some(place) => Ok(place),
                None => self.enter(Arc::new(outside::open_at_path(path)?)),
            },
        }
    }

    /// The working directory of the calling thread, without opening it if it is where it was.
    fn enter_working_directory(&mut self) -> Answer<Place> {
        let key = outside::key_at(b".")?;
        if let Some(known) = self.state.entered.get(&key) {
            return Ok(known.clone());
        }
        if let Some(place) = self.enter_top(key)? {
            return Ok(place);
        }
        if let Some(path) = self.shared.paths.working_directory(key) {
            match self.enter_at(key, &path) {
                Ok(Some(place)) => return Ok(place),
                // It has moved.
                Ok(None) | Err(Fault::Os(_)) => {}
                Err(ends) => return Err(ends),
            }
        }
        let dir = Arc::new(outside::open_at_path(b".")?);
        let place = self.enter(dir.clone())?;
        if let Place::Inside { .. } = place {
            self.shared.paths.set_working_directory(outside::key_of(&dir)?, &outside::path_of(&dir)?);
        }
        Ok(place)
    }

    /// The top of a file system that is open already. Of an ordinary user's directory the owners of those above have a
    /// say.
    fn enter_top(&mut self, key: Key) -> Answer<Option<Place>> {
        let (_, _, mount) = key;
        if self.shared.uid != 0 {
            return Ok(None);
        }
        let table = self.table()?;
        let Some(open) = self.shared.served.top(&table, key) else { return Ok(None) };
        let index = self.serve_open(open)?;
        let node = self.state.engine.root(index);
        self.state.tops.insert(mount, node);
        let place = Place::Inside { node, mount };
        self.state.entered.insert(key, place.clone());
        Ok(Some(place))
    }

    /// A directory that the kernel has opened, as a place of the transaction if its file system is served.
    ///
    /// # Errors
    /// `ESTALE` if the transaction sees another object at its path: it has moved, inside or outside.
    pub fn enter(&mut self, fd: Arc<OwnedFd>) -> Answer<Place> {
        let key = outside::key_of(&fd)?;
        if let Some(known) = self.state.entered.get(&key) {
            return Ok(known.clone());
        }
        Ok(self.enter_at(key, &outside::path_of(&fd)?)?.unwrap_or(Place::Outside(fd)))
    }

    /// The directory at a path from the root, as [`Calling::enter`] does; `None`: it is not served.
    fn enter_at(&mut self, key: Key, path: &[u8]) -> Answer<Option<Place>> {
        let (_, ino, mount) = key;
        let table = self.table()?;
        let Some(site) = table.site(self.shared.uid, path, mount) else { return Ok(None) };
        let Some(index) = self.serve(&site)? else { return Ok(None) };
        let mut node = self.state.engine.root(index);
        for name in site.rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            // The caller holds the directory open or stands in it, however it came there.
            node = self.lookup(node, name)?.ok_or(Fault::Os(Errno::STALE))?.0;
        }
        if self.state.engine.ino(node) != ino {
            return Err(Errno::STALE.into());
        }
        self.keep_for_good(node);
        if table.mount(mount).is_some_and(|mount| mount.point == path) {
            self.state.tops.insert(mount, node);
        }
        let place = Place::Inside { node, mount };
        self.state.entered.insert(key, place.clone());
        Ok(Some(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rest: &Rest) -> Vec<&str> {
        rest.names.iter().map(|name| std::str::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn a_links_target_goes_before_the_rest() {
        let mut rest = Rest::of(b"//b///c/");
        assert_eq!((names(&rest), rest.slash), (vec!["b", "c"], true));
        rest.lead(Rest::of(b"../x"));
        assert_eq!((names(&rest), rest.slash), (vec!["..", "x", "b", "c"], true));
        let mut end = Rest::of(b"");
        end.lead(Rest::of(b"/d/"));
        assert_eq!((names(&end), end.slash), (vec!["d"], true), "what a link at the end says counts");
        let mut middle = Rest::of(b"e");
        middle.lead(Rest::of(b"d/"));
        assert_eq!((names(&middle), middle.slash), (vec!["d", "e"], false));
    }
}
