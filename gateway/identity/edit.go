package identity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// editBytesMax bounds the files that Add, List and Revoke read.
const editBytesMax = 64 << 20

// Draft is a key that is to be made.
type Draft struct {
	Name, Tenant            string
	Expires                 time.Time // the zero time is never
	Classes, Routes, Models []string
	// Limits are its budgets, as lines of YAML.
	Limits []string
}

// Add makes a key and writes its hash into the key file at path, or into a file of
// its own in the folder at path. It returns the key, which nothing else holds, and
// the file. check is asked about the entry before it is written.
func Add(path string, d Draft, now time.Time, check func(Entry) error) (key, file string, err error) {
	if !nameForm.MatchString(d.Name) {
		return "", "", badName(d.Name)
	}
	unlock, err := lock(path)
	if err != nil {
		return "", "", err
	}
	defer unlock()
	old, err := readAll(path)
	if err != nil {
		return "", "", err
	}
	file = path
	if isFolder(path) {
		file = filepath.Join(path, d.Name+".yaml")
		if _, err := os.Lstat(file); err == nil {
			return "", "", fmt.Errorf("%s is there already; give the key another name", file)
		}
	}
	key, id, h := mint()
	entry := d.entry(id, h.String(), now)
	body := appendEntry(bodyOf(old, file), entry)
	changed := with(old, file, body)
	entries, err := parseKeys(changed, len(changed)*editBytesMax)
	if err != nil {
		return "", "", err
	}
	before, err := parseKeys(old, len(changed)*editBytesMax)
	if err != nil {
		return "", "", err
	}
	added := differing(before, entries)
	if len(entries) != len(before)+1 || len(added) != 1 || added[0].Name != d.Name || added[0].Hash != h.String() {
		return "", "", fmt.Errorf("%s has a form that nothing can be appended to; add this to its keys by hand, and throw this key away by leaving it out:\n%s", file, strings.Join(entry, "\n"))
	}
	if err := check(added[0].Entry); err != nil {
		return "", "", err
	}
	return key, file, replace(file, body)
}

// entry is the draft as lines of YAML, without indentation.
func (d *Draft) entry(id, hash string, now time.Time) []string {
	lines := []string{"name: " + d.Name, "id: \"" + id + "\"", "hash: " + hash, fmt.Sprintf("tenant: %q", d.Tenant), "created: " + stamp(now)}
	if !d.Expires.IsZero() {
		lines = append(lines, "expires: "+stamp(d.Expires))
	}
	for _, list := range []struct {
		key   string
		items []string
	}{{"classes", d.Classes}, {"routes", d.Routes}, {"models", d.Models}} {
		if len(list.items) > 0 {
			quoted := make([]string, len(list.items))
			for i, item := range list.items {
				quoted[i] = fmt.Sprintf("%q", item)
			}
			lines = append(lines, list.key+": ["+strings.Join(quoted, ", ")+"]")
		}
	}
	if len(d.Limits) > 0 {
		lines = append(lines, "limits: {"+strings.Join(d.Limits, ", ")+"}")
	}
	return lines
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// List returns the entries at path.
func List(path string) ([]Entry, error) {
	files, err := readKeys(path, editBytesMax)
	if err != nil {
		return nil, err
	}
	found, err := parseKeys(files, editBytesMax)
	entries := make([]Entry, len(found))
	for i := range found {
		entries[i] = found[i].Entry
	}
	return entries, err
}

// Revoke marks the key of a name as revoked at now, and returns its file.
func Revoke(path, name string, now time.Time) (file string, err error) {
	unlock, err := lock(path)
	if err != nil {
		return "", err
	}
	defer unlock()
	old, err := readAll(path)
	if err != nil {
		return "", err
	}
	before, err := parseKeys(old, editBytesMax)
	if err != nil {
		return "", err
	}
	for _, f := range old {
		body, ok := markRevoked(f.body, name, stamp(now))
		if !ok {
			continue
		}
		after, err := parseKeys(with(old, f.name, body), editBytesMax)
		if changed := differing(before, after); err != nil || len(after) != len(before) || len(changed) != 1 || changed[0].Name != name {
			return "", fmt.Errorf("%s has a form that cannot be edited; add this to the key %s by hand: revoked: %s", f.name, name, stamp(now))
		}
		return f.name, replace(f.name, body)
	}
	for _, e := range before {
		switch {
		case e.Name == name && e.Revoked != "":
			return "", fmt.Errorf("the key %s was revoked at %s already", name, e.Revoked)
		case e.Name == name:
			return "", fmt.Errorf("%s: has a form that cannot be edited; add this to the key %s by hand: revoked: %s", e.place, name, stamp(now))
		}
	}
	return "", fmt.Errorf("there is no key %q at %s; forebay key list shows those that are", clip(name), path)
}

// differing are the entries of after that are not, in the same words, in before.
func differing(before, after []entryIn) (changed []entryIn) {
	known := map[string]Entry{}
	for _, e := range before {
		known[e.Name] = e.Entry
	}
	for _, e := range after {
		if old, ok := known[e.Name]; !ok || !reflect.DeepEqual(old, e.Entry) {
			changed = append(changed, e)
		}
	}
	return changed
}

var (
	itemLine  = regexp.MustCompile(`(?m)^([ \t]*)-[ \t]`)
	emptyList = regexp.MustCompile(`(?m)^keys:[ \t]*\[[ \t]*\][ \t]*(#.*)?$`)
)

// appendEntry appends an entry to the text of a key file, with the indentation of
// those before it.
func appendEntry(body []byte, entry []string) []byte {
	indent := "  "
	switch first := itemLine.FindSubmatch(body); {
	case first != nil:
		indent = string(first[1])
	case emptyList.Match(body):
		body = emptyList.ReplaceAll(body, []byte("keys:"))
	case len(bytes.TrimSpace(body)) == 0:
		body = []byte("# Keys of Forebay. forebay key new, list and revoke edit this file; so may you.\nkeys:\n")
	}
	b := bytes.NewBuffer(bytes.TrimRight(body, " \t\r\n"))
	b.WriteByte('\n')
	lead := indent + "- "
	for _, line := range entry {
		b.WriteString(lead + line + "\n")
		lead = indent + "  "
	}
	return b.Bytes()
}

// markRevoked adds the key revoked below the name of an entry. ok is false where no
// such line is found, or the entry has one already.
func markRevoked(body []byte, name, at string) (changed []byte, ok bool) {
	if !nameForm.MatchString(name) {
		return nil, false
	}
	line := regexp.MustCompile(`(?m)^([ \t]*(?:-[ \t]+)?)name:[ \t]*["']?` + regexp.QuoteMeta(name) + `["']?[ \t]*(?:#.*)?$`)
	found := line.FindSubmatchIndex(body)
	if found == nil {
		return nil, false
	}
	indent := strings.ReplaceAll(string(body[found[2]:found[3]]), "-", " ")
	rest := body[found[1]:]
	if next := itemLine.FindIndex(rest); next != nil {
		rest = rest[:next[0]]
	}
	if regexp.MustCompile(`(?m)^[ \t]*revoked:`).Match(rest) {
		return nil, false
	}
	b := bytes.NewBuffer(nil)
	b.Write(body[:found[1]])
	b.WriteString("\n" + indent + "revoked: " + at)
	b.Write(body[found[1]:])
	return b.Bytes(), true
}

// readAll is readKeys, where a file that is not there is an empty one.
func readAll(path string) ([]text, error) {
	files, err := readKeys(path, editBytesMax)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return files, err
}

func isFolder(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.IsDir()
}

func bodyOf(files []text, name string) []byte {
	for _, f := range files {
		if f.name == name {
			return f.body
		}
	}
	return nil
}

// with is files with another body of the file of a name.
func with(files []text, name string, body []byte) []text {
	var changed []text
	for _, f := range files {
		if f.name != name {
			changed = append(changed, f)
		}
	}
	return append(changed, text{name, body})
}

// lock keeps other editors of the keys at path away until unlock.
func lock(path string) (unlock func(), err error) {
	folder := path
	if !isFolder(path) {
		folder = filepath.Dir(path)
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", folder, err)
	}
	return func() { f.Close() }, nil
}

// replace writes a file whole or not at all, with the mode and owner of the one
// before. A link stays, and its target is replaced.
func replace(name string, body []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	mode, owner := os.FileMode(0o600), filepath.Dir(name)
	if about, err := os.Stat(name); err == nil {
		mode, owner = about.Mode().Perm(), name
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".forebay-keys-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if about, statErr := os.Stat(owner); statErr == nil && os.Geteuid() == 0 {
		if unix, ok := about.Sys().(*syscall.Stat_t); ok {
			err = errors.Join(err, os.Chown(f.Name(), int(unix.Uid), int(unix.Gid)))
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
