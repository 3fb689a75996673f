package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptName is the file in the state folder.
const keptName = "policy.json"

// kept is the file of the last good policy. Its time of change is when the control
// plane last had it.
type kept struct {
	Node     string     `json:"node"`
	Version  string     `json:"version"`
	Files    []keptFile `json:"files"`
	Checksum string     `json:"checksum"`
}

type keptFile struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Text    string `json:"text"`
	TTL     int64  `json:"ttl_ms,omitempty"` // from when the control plane last had it; 0 is for ever
}

func (k *kept) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", k.Node, k.Version)
	for _, f := range k.Files {
		fmt.Fprintf(h, "%q %q %q %d\n", f.Name, f.Version, f.Text, f.TTL)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// save writes what b holds, whole or not at all.
func save(dir, node string, b *book) error {
	k := kept{Node: node, Version: b.version}
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		f := b.files[name]
		k.Files = append(k.Files, keptFile{name, f.version, f.text, f.ttl.Milliseconds()})
	}
	k.Checksum = k.sum()
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, keptName+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, keptName))
}

// confirmKept notes that the control plane still has what is kept.
func confirmKept(dir string, now time.Time) { os.Chtimes(filepath.Join(dir, keptName), now, now) }

// load reads what was kept for a node into b, and when the control plane last had it.
// It is false where nothing is kept.
func load(dir, node string, b *book) (at time.Time, ok bool, err error) {
	file := filepath.Join(dir, keptName)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	// JSON may take six bytes for one.
	if info.Size() > 6*int64(b.bytesMax+overhead) {
		return time.Time{}, false, fmt.Errorf("%s has %d bytes, which no policy has", file, info.Size())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, false, err
	}
	var k kept
	switch err := json.Unmarshal(text, &k); {
	case err != nil:
		return time.Time{}, false, fmt.Errorf("%s: %w", file, err)
	case k.Checksum != k.sum():
		return time.Time{}, false, fmt.Errorf("%s: was changed or is damaged: its checksum is another", file)
	case k.Node != node:
		return time.Time{}, false, fmt.Errorf("%s: belongs to the node %q, and this one is %q", file, k.Node, node)
	}
	next := map[string]held{}
	for _, f := range k.Files {
		one := held{version: f.Version, text: f.Text, ttl: time.Duration(f.TTL) * time.Millisecond}
		if one.ttl > 0 {
			one.expires = info.ModTime().Add(one.ttl)
		}
		next[f.Name] = one
	}
	return info.ModTime(), true, b.take(next, k.Version)
}
