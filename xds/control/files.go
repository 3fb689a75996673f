package control

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds/policy"
)

// Files is what a folder holds, and what its policy names.
type Files struct {
	Policy *policy.Policy
	Files  []conf.File
	// PEM holds the files of certificates, by the path that the policy names.
	PEM map[string][]byte
}

// Read reads the policy in a folder. Each mistake begins with the file, and names
// line and setting where it lies in one.
func Read(dir string, filesMax, bytesMax int) (*Files, error) {
	files, err := gather(dir, filesMax, bytesMax)
	if err != nil {
		return nil, err
	}
	return parse(files)
}

// gather reads the files in a folder, in the order of their names.
func gather(dir string, filesMax, bytesMax int) ([]conf.File, error) {
	names, root, err := list(dir, filesMax)
	if err != nil {
		return nil, err
	}
	var files []conf.File
	total := 0
	for _, name := range names {
		text, err := readAtMost(filepath.Join(root, filepath.FromSlash(name)), bytesMax-total)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		total += len(text)
		files = append(files, conf.File{Name: name, Text: text})
	}
	return files, nil
}

// parse reads the policy in files, and the files that it names.
func parse(files []conf.File) (*Files, error) {
	f := &Files{Files: files, PEM: map[string][]byte{}}
	var err error
	if f.Policy, err = policy.Parse(f.Files); err != nil {
		return nil, err
	}
	if err := f.checkNotes(); err != nil {
		return nil, err
	}
	for i, c := range f.Policy.Mesh.Certificates {
		for setting, file := range map[string]string{"chain": c.Chain, "key": c.Key, "ca": c.CA} {
			if file == "" {
				continue
			}
			if f.PEM[file], err = readAtMost(file, pemBytesMax); err != nil {
				return nil, f.Policy.Place(fmt.Errorf("mesh.certificates[%d].%s: %w", i, setting, err))
			}
		}
		if err := f.checkCertificate(&c); err != nil {
			return nil, f.Policy.Place(fmt.Errorf("mesh.certificates[%d].chain: %w", i, err))
		}
	}
	return f, nil
}

// checkNotes refuses what is said of files that gateways are not given.
func (f *Files) checkNotes() error {
	var errs []error
	for i, note := range f.Policy.Config.Files {
		if !f.Policy.ForGateways(note.Name) {
			errs = append(errs, f.Policy.Place(fmt.Errorf("files[%d].name: %q is no file of this policy that gateways are given; give its path in the folder", i, note.Name)))
		}
	}
	return errors.Join(errs...)
}

// pemBytesMax bounds one file of certificates.
const pemBytesMax = 1 << 20

// list returns the names of the policy files under a folder, sorted, and the folder
// that the symbolic link dir leads to. Hidden files are left out: a ConfigMap keeps
// its versions in folders that begin with two dots.
func list(dir string, filesMax int) (names []string, root string, err error) {
	if root, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, "", fmt.Errorf("dir: %w", err)
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || path.Ext(name) != ".yaml" && path.Ext(name) != ".yml":
			return nil
		}
		names = append(names, name)
		if len(names) > filesMax {
			return fmt.Errorf("there are more than files_max, %d, policy files", filesMax)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("dir: %w", err)
	}
	slices.Sort(names)
	return names, root, nil
}

// readAtMost reads a regular file of at most so many bytes.
func readAtMost(file string, bytesMax int) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", file)
	}
	if info.Size() > int64(bytesMax) {
		return nil, fmt.Errorf("%s has %d bytes, and %d are left of the limit", file, info.Size(), bytesMax)
	}
	return os.ReadFile(file)
}

// signature changes when a file of the policy does, or one that it names.
func signature(dir string, filesMax int, named []string) string {
	h := sha256.New()
	names, root, err := list(dir, filesMax)
	fmt.Fprintln(h, root, err)
	for i, name := range slices.Concat(names, named) {
		file := name
		if i < len(names) {
			file = filepath.Join(root, filepath.FromSlash(name))
		}
		info, err := os.Stat(file)
		if err != nil {
			fmt.Fprintln(h, name, err)
			continue
		}
		fmt.Fprintln(h, name, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return string(h.Sum(nil))
}

// named lists the files of certificates, in a fixed order.
func (f *Files) named() []string {
	if f == nil {
		return nil
	}
	var names []string
	for name := range f.PEM {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}
