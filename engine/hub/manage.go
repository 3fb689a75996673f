package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Cached is a model in the cache, or the rest of an incomplete one.
type Cached struct {
	Ref     Ref    // the reference for Pull and Remove
	Path    string // as in Model
	Commit  string
	Bytes   int64
	Problem string // why it cannot be used; "" if nothing is known
}

// List returns every model of every commit in the cache, sorted by name. A model
// that cannot be read is listed with its problem. List opens no model file.
func (h *Hub) List() ([]Cached, error) {
	roots, err := os.ReadDir(h.cfg.CacheDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Cached
	for _, root := range roots {
		name, ok := strings.CutPrefix(root.Name(), folderPrefix)
		repo := strings.Replace(name, "--", "/", 1)
		if _, err := ParseRef(Scheme + repo); !ok || err != nil {
			continue
		}
		all = append(all, h.folder(repo).list()...)
	}
	return all, nil
}

func (f folder) list() (all []Cached) {
	commits, err := os.ReadDir(filepath.Join(f.root, "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []Cached{{Ref: Ref{Repo: f.repo}, Path: f.root, Problem: err.Error()}}
	}
	revisions := f.revisions()
	for _, c := range commits {
		ref := Ref{Repo: f.repo, Revision: c.Name()}
		if named := revisions[c.Name()]; len(named) > 0 {
			ref.Revision = named[0]
		}
		if ref.Revision == defaultRevision {
			ref.Revision = ""
		}
		all = append(all, f.listCommit(ref, c.Name())...)
	}
	partial, _ := filepath.Glob(filepath.Join(f.root, "blobs", "*"+incomplete))
	for _, name := range partial {
		if info, err := os.Lstat(name); err == nil {
			all = append(all, Cached{Ref: Ref{Repo: f.repo}, Path: name, Bytes: info.Size(), Problem: "a download that is not complete"})
		}
	}
	return all
}

func (f folder) listCommit(ref Ref, commit string) (all []Cached) {
	l, err := f.scan(commit)
	if err != nil {
		return []Cached{{Ref: ref, Path: f.snapshot(commit), Commit: commit, Problem: err.Error()}}
	}
	add := func(file string, c choice, err error) {
		one := Cached{Ref: ref, Commit: commit, Path: f.file(commit, file)}
		one.Ref.File = file
		if err != nil {
			one.Problem = err.Error()
		}
		for _, e := range c.files {
			if e.Size < 0 {
				one.Problem = e.Name + " cannot be read, or leads to no file"
			}
			one.Bytes += max(0, e.Size)
		}
		all = append(all, one)
	}
	models := l.models()
	for _, file := range models {
		c, err := l.whole(file)
		add(file, c, err)
	}
	if _, ok := l.find("config.json"); ok && len(models) == 0 {
		if c, err := l.chooseFolder(); err == nil {
			add("", c, nil)
		}
	}
	return all
}

// revisions returns the branches and tags of each commit, main first.
func (f folder) revisions() map[string][]string {
	named := map[string][]string{}
	root := filepath.Join(f.root, "refs")
	_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if revision, err := filepath.Rel(root, name); err == nil {
			revision = filepath.ToSlash(revision)
			if commit := f.commitOf(revision); commit != "" {
				named[commit] = append(named[commit], revision)
			}
		}
		return nil
	})
	for _, revisions := range named {
		slices.SortFunc(revisions, func(a, b string) int {
			if (a == defaultRevision) != (b == defaultRevision) {
				return map[bool]int{true: -1, false: 1}[a == defaultRevision]
			}
			return strings.Compare(a, b)
		})
	}
	return named
}

// Removed is what Remove did.
type Removed struct {
	Files int
	Bytes int64
}

// Remove deletes ref from the cache. A reference without revision and file
// deletes the whole repository; another deletes its files in the snapshots, and
// the blobs that no other link uses. An open file stays readable.
func (h *Hub) Remove(ref Ref) (Removed, error) {
	f := h.folder(ref.Repo)
	if _, err := os.Stat(f.root); err != nil {
		return Removed{}, fmt.Errorf("%s is not in %s; forebay model list shows what is", ref, h.cfg.CacheDir)
	}
	if ref.Revision == "" && ref.File == "" {
		return f.removeAll()
	}
	links, err := f.linksOf(ref)
	if err != nil {
		return Removed{}, err
	}
	if len(links) == 0 {
		return Removed{}, fmt.Errorf("%s is not in %s; forebay model list shows what is", ref, h.cfg.CacheDir)
	}
	removed, err := f.removeLinks(links)
	if err != nil {
		return removed, err
	}
	left, err := f.sweep()
	if err == nil && left == 0 {
		rest, err := f.removeAll()
		if errors.Is(err, errLocked) {
			err = nil
		}
		removed.Bytes += rest.Bytes
		return removed, err
	}
	return removed, err
}

// linksOf returns the paths in the snapshots that ref selects.
func (f folder) linksOf(ref Ref) (links []string, err error) {
	commits, err := os.ReadDir(filepath.Join(f.root, "snapshots"))
	if err != nil {
		return nil, err
	}
	wanted := f.commitOf(ref.Revision)
	var why error
	for _, c := range commits {
		if ref.Revision != "" && c.Name() != wanted {
			continue
		}
		l, err := f.scan(c.Name())
		if err != nil {
			return nil, err
		}
		chosen := choice{files: l.files}
		if ref.File != "" {
			if chosen, err = l.choose(ref.File); err != nil {
				why = err
				if e, ok := l.find(ref.File); ok { // one part of an incomplete model
					chosen.files = []entry{e}
				}
			}
		}
		for _, e := range chosen.files {
			links = append(links, f.file(c.Name(), e.Name))
		}
	}
	if len(links) == 0 {
		return nil, why
	}
	return links, nil
}

// removeLinks removes links, and the blobs that no link uses afterwards.
func (f folder) removeLinks(links []string) (removed Removed, err error) {
	var blobs []string
	for _, link := range links {
		info, err := os.Lstat(link)
		if err != nil {
			return removed, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			blobs = append(blobs, f.target(link))
		} else {
			removed.Bytes += info.Size()
		}
		if err := os.Remove(link); err != nil {
			return removed, err
		}
		removed.Files++
	}
	used := f.used()
	for _, blob := range blobs {
		info, err := os.Lstat(blob)
		if err != nil || used[blob] || filepath.Dir(blob) != filepath.Join(f.root, "blobs") {
			continue
		}
		if err := os.Remove(blob); err != nil {
			return removed, err
		}
		removed.Bytes += info.Size()
	}
	return removed, nil
}

// target returns where a link leads in one step, "" if it is not a link.
func (f folder) target(link string) string {
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(link), to)
	}
	return filepath.Clean(to)
}

// used returns the targets of all links in the snapshots.
func (f folder) used() map[string]bool {
	used := map[string]bool{}
	_ = filepath.WalkDir(filepath.Join(f.root, "snapshots"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			used[f.target(name)] = true
		}
		return nil
	})
	return used
}

// sweep removes empty snapshots, with the refs and trees of their commits, and
// returns how many snapshots are left.
func (f folder) sweep() (left int, err error) {
	commits, err := os.ReadDir(filepath.Join(f.root, "snapshots"))
	if err != nil {
		return 0, err
	}
	revisions := f.revisions()
	for _, c := range commits {
		l, err := f.scan(c.Name())
		if err != nil {
			return 0, err
		}
		if len(l.files) > 0 {
			left++
			continue
		}
		for _, revision := range revisions[c.Name()] {
			err = errors.Join(err, os.Remove(f.ref(revision)))
		}
		os.Remove(f.tree(c.Name()))
		if err = errors.Join(err, os.RemoveAll(f.snapshot(c.Name()))); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// removeAll removes the repository, unless a download is running in it.
func (f folder) removeAll() (removed Removed, err error) {
	partial, _ := filepath.Glob(filepath.Join(f.root, "blobs", "*"+incomplete))
	for _, name := range partial {
		release, err := f.tryLock(strings.TrimSuffix(filepath.Base(name), incomplete))
		if err != nil {
			return removed, fmt.Errorf("%s: %w", f.repo, err)
		}
		defer release()
	}
	err = filepath.WalkDir(f.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if within, _ := filepath.Rel(f.root, name); strings.HasPrefix(within, "snapshots") {
			removed.Files++
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			removed.Bytes += info.Size()
		}
		return nil
	})
	if err = errors.Join(err, os.RemoveAll(f.root)); err == nil {
		err = os.RemoveAll(f.locks)
	}
	return removed, err
}
