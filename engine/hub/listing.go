package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of a server's answer and of cached files.
const (
	listingBytesMax = 64 << 20
	filesMax        = 100_000
)

// listing is the list of a repository's files at one commit.
type listing struct {
	repo   string
	commit string
	files  []entry
	local  bool           // made from the cache, because the Hub was not asked
	places map[string]int // index of files by name, made by find
}

// entry is a file of a repository.
type entry struct {
	Name string
	Size int64  // -1 where it is not known
	ETag string // name of the blob, "" where it is not known
}

// fetchListing asks the Hub for the files of a revision, with their sizes and
// checksums, in one request.
func (h *Hub) fetchListing(ctx context.Context, ref Ref, attempts int) (*listing, error) {
	address := h.cfg.Endpoint + "/api/models/" + ref.Repo + "/revision/" + url.PathEscape(ref.revision()) + "?blobs=true"
	text, err := h.getAll(ctx, address, attempts)
	if err != nil {
		return nil, h.explain(ref, err)
	}
	var reply struct {
		SHA      string
		Siblings []struct {
			RFilename string
			Size      *int64
			BlobID    string
			LFS       *struct {
				SHA256 string
				Size   int64
			}
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("%s: what %s answers is no listing: %w", ref.Repo, h.cfg.Endpoint, err)
	}
	if !commitPattern.MatchString(reply.SHA) || len(reply.Siblings) > filesMax {
		return nil, fmt.Errorf("%s: what %s answers is no listing: commit %q, %d files", ref.Repo, h.cfg.Endpoint, reply.SHA, len(reply.Siblings))
	}
	l := &listing{repo: ref.Repo, commit: reply.SHA}
	for _, s := range reply.Siblings {
		e := entry{Name: s.RFilename, Size: -1, ETag: s.BlobID}
		switch {
		case s.LFS != nil && s.LFS.SHA256 != "":
			e.ETag, e.Size = s.LFS.SHA256, s.LFS.Size
		case s.Size != nil:
			e.Size = *s.Size
		}
		l.files = append(l.files, e)
	}
	return l, nil
}

// treeFormat is the version of the tree files, which the Hub's tools write too.
const treeFormat = 1

type tree struct {
	FormatVersion int                  `json:"format_version"`
	Files         map[string]treeEntry `json:"files"`
}

type treeEntry struct {
	Size      int64  `json:"size"`
	BlobID    string `json:"blob_id"`
	LFSSHA256 string `json:"lfs_sha256,omitempty"`
	LFSSize   int64  `json:"lfs_size,omitempty"`
}

// readTree returns the stored listing, nil if there is none.
func (f folder) readTree(commit string) *listing {
	text, err := readSmall(f.tree(commit), listingBytesMax)
	var t tree
	if err != nil || json.Unmarshal(text, &t) != nil || t.FormatVersion != treeFormat {
		return nil
	}
	l := &listing{repo: f.repo, commit: commit}
	for name, e := range t.Files {
		known := entry{Name: name, Size: e.Size, ETag: e.BlobID}
		if e.LFSSHA256 != "" {
			known.ETag, known.Size = e.LFSSHA256, e.LFSSize
		}
		l.files = append(l.files, known)
	}
	slices.SortFunc(l.files, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return l
}

// writeTree stores l if it is complete. A failure only costs a request later.
func (f folder) writeTree(l *listing) {
	t := tree{FormatVersion: treeFormat, Files: map[string]treeEntry{}}
	for _, e := range l.files {
		known := treeEntry{Size: e.Size, BlobID: e.ETag}
		if len(e.ETag) == sha256Digits {
			known.LFSSHA256, known.LFSSize = e.ETag, e.Size
		}
		if e.ETag == "" || e.Size < 0 {
			return
		}
		t.Files[e.Name] = known
	}
	if _, err := os.Stat(f.tree(l.commit)); err == nil {
		return
	}
	if text, err := json.MarshalIndent(t, "", " "); err == nil {
		_ = replaceFile(f.tree(l.commit), text)
	}
}

// scan lists the files in the snapshot of a commit, with the sizes of their
// blobs; -1 for a file that cannot be read.
func (f folder) scan(commit string) (*listing, error) {
	l := &listing{repo: f.repo, commit: commit, local: true}
	root := f.snapshot(commit)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		if len(l.files) == filesMax {
			return fmt.Errorf("%s has more than %d files", root, filesMax)
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		e := entry{Name: filepath.ToSlash(relative), Size: -1}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			e.Size = info.Size()
		}
		l.files = append(l.files, e)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	return l, err
}
