package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forebay-io/forebay/internal/conf"
)

// entryIn is an entry with the place where it stands, for messages.
type entryIn struct {
	Entry
	place string
}

// text is the content of one key file.
type text struct {
	name string
	body []byte
}

// readKeys reads the key file at path, or all those in the folder at path.
func readKeys(path string, bytesMax int) ([]text, error) {
	names, err := keyFiles(path)
	if err != nil {
		return nil, err
	}
	var all []text
	var errs []error
	for _, name := range names {
		body, err := readBounded(name, bytesMax)
		bytesMax -= len(body)
		all, errs = append(all, text{name, body}), append(errs, err, checkOwner(path, name))
	}
	return all, errors.Join(errs...)
}

// keyFiles lists the files of path: itself, or those in the folder that end in .yaml
// or .yml. Names that begin with a dot are left out: in a Kubernetes volume they are
// the folders that the others link to, and editors keep copies under such names.
func keyFiles(path string) ([]string, error) {
	about, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !about.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, e := range entries {
		if ending := filepath.Ext(e.Name()); (ending == ".yaml" || ending == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	return names, nil
}

// checkOwner refuses a file that a stranger has put into a folder that others than
// its owner may write. In a Kubernetes volume, which is such a folder, the folder's
// owner has the files too.
func checkOwner(folder, name string) error {
	about, err := os.Stat(folder)
	if err != nil || !about.IsDir() || about.Mode().Perm()&0o022 == 0 {
		return err
	}
	file, err := os.Stat(name)
	if err != nil {
		return err
	}
	ours, ok1 := about.Sys().(*syscall.Stat_t)
	theirs, ok2 := file.Sys().(*syscall.Stat_t)
	if ok1 && ok2 && theirs.Uid != ours.Uid && theirs.Uid != 0 {
		return fmt.Errorf("%s: belongs to the user %d, and others than the owner of %s may write there, so anybody could add a key; run chmod go-w on the folder", name, theirs.Uid, folder)
	}
	return nil
}

// readBounded reads a file that only its owner may change: whoever can write it can
// give himself a key.
func readBounded(name string, bytesMax int) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not stop us
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !about.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a plain file", name)
	case about.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s: others than its owner may write it (mode %#o), so anybody could add a key; run chmod go-w on it", name, about.Mode().Perm())
	}
	body, err := io.ReadAll(io.LimitReader(f, int64(max(0, bytesMax))+1))
	if err == nil && len(body) > bytesMax {
		err = fmt.Errorf("%s: is over identity.file_bytes_max", name)
	}
	return body, err
}

// parseKeys reads the entries of key files, each checked by itself, and that names
// and ids differ.
func parseKeys(files []text, keysMax int) ([]entryIn, error) {
	var all []entryIn
	var errs []error
	names, ids := map[string]string{}, map[string]string{}
	for _, f := range files {
		var content keyFile
		if err := conf.Of(&content).Load(conf.Source{FileName: f.name, File: f.body}); err != nil {
			errs = append(errs, err)
			continue
		}
		if content.Keys == nil {
			errs = append(errs, fmt.Errorf("%s: has no list keys, so it may be half written; write keys: [] if it is to hold none", f.name))
			continue
		}
		for i, e := range content.Keys {
			place := fmt.Sprintf("%s: keys[%d]", f.name, i)
			if first, twice := names[e.Name]; twice {
				errs = append(errs, fmt.Errorf("%s.name: %s is the name of %s too", place, e.Name, first))
			}
			if first, twice := ids[e.ID]; twice {
				errs = append(errs, fmt.Errorf("%s.id: %s is the id of %s too", place, e.ID, first))
			}
			names[e.Name], ids[e.ID] = place, place
			all = append(all, entryIn{e, place})
		}
	}
	if len(all) > keysMax {
		errs = append(errs, fmt.Errorf("there are %d keys, over identity.keys_max of %d", len(all), keysMax))
	}
	return all, errors.Join(errs...)
}

// signature changes whenever the files at path may have changed.
func signature(path string) string {
	names, err := keyFiles(path)
	if err != nil {
		return "! " + errorKind(err)
	}
	var b strings.Builder
	for _, name := range names {
		about, err := os.Stat(name) // follows links: a Kubernetes volume is updated by changing one
		if err != nil {
			fmt.Fprintf(&b, "%s ! %s\n", name, errorKind(err))
			continue
		}
		var unix syscall.Stat_t
		if known, ok := about.Sys().(*syscall.Stat_t); ok {
			unix = *known
		}
		fmt.Fprintf(&b, "%s %d %d %d %o %d %d\n", name, about.Size(), about.ModTime().UnixNano(), unix.Ino, about.Mode(), unix.Uid, unix.Gid)
	}
	return b.String()
}

// errorKind is an error without the path that it names.
func errorKind(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
