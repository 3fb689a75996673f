package hub

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Scheme begins every reference.
const Scheme = "hf:"

// defaultRevision is the branch of a reference without a revision.
const defaultRevision = "main"

// Ref names something in a repository of models.
type Ref struct {
	Repo     string // OWNER/NAME
	Revision string // a branch, tag or commit; "" means main
	File     string // a path in the repository or a quantisation; "" leaves the choice to us
}

// IsRef tells a reference from a path.
func IsRef(text string) bool { return strings.HasPrefix(text, Scheme) }

var repoPart = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?$`)

// ParseRef reads hf:OWNER/REPO[@REVISION][:FILE].
func ParseRef(text string) (Ref, error) {
	fail := func(why string) (Ref, error) {
		return Ref{}, fmt.Errorf("%q is not a model reference: %s; write hf:OWNER/REPO, hf:OWNER/REPO:FILE or hf:OWNER/REPO@REVISION:FILE", text, why)
	}
	if near := nearRef(text); near != "" {
		return fail("perhaps " + near + " is meant")
	}
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return fail("it does not begin with " + Scheme)
	}
	repo, file, hasFile := strings.Cut(rest, ":")
	repo, revision, hasRevision := strings.Cut(repo, "@")
	owner, name, _ := strings.Cut(repo, "/")
	switch {
	case !repoPart.MatchString(owner) || !repoPart.MatchString(name) || strings.Contains(repo, "--") || strings.Contains(repo, ".."):
		return fail(fmt.Sprintf("%q is not OWNER/REPO", repo))
	case hasRevision && !isSafeName(revision):
		return fail(fmt.Sprintf("%q is not a revision", revision))
	case hasFile && !isSafeName(file):
		return fail(fmt.Sprintf("%q is not a path in a repository", file))
	}
	return Ref{Repo: repo, Revision: revision, File: file}, nil
}

// nearRef turns the web address of a repository into a reference; "" for any
// other text.
func nearRef(text string) string {
	for _, begin := range []string{Scheme + "//", "https://huggingface.co/", "http://huggingface.co/"} {
		if rest, ok := strings.CutPrefix(text, begin); ok {
			if owner, name, ok := strings.Cut(rest, "/"); ok {
				name, _, _ = strings.Cut(name, "/")
				return Scheme + owner + "/" + name
			}
		}
	}
	return ""
}

// String is the reference in the form that ParseRef reads.
func (r Ref) String() string {
	text := Scheme + r.Repo
	if r.Revision != "" {
		text += "@" + r.Revision
	}
	if r.File != "" {
		text += ":" + r.File
	}
	return text
}

func (r Ref) revision() string {
	if r.Revision == "" {
		return defaultRevision
	}
	return r.Revision
}

// commitPattern is a full commit, by SHA-1 or SHA-256.
var commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// isSafeName tells whether a path from outside stays below the folder it is
// joined to, on the file systems of all platforms.
func isSafeName(name string) bool {
	const pathBytesMax, partBytesMax = 1024, 240
	if name == "" || len(name) > pathBytesMax {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > partBytesMax || strings.HasSuffix(part, ".") ||
			strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r) }) ||
			reservedName.MatchString(part) {
			return false
		}
	}
	return true
}

// reservedName matches the device names that Windows has in every folder.
var reservedName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// splitPart is the name of one part of a split model file.
var splitPart = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.gguf|\.safetensors)$`)

// partsMax bounds the parts of one model.
const partsMax = 1000

// partNames returns the names of all parts of the split file that name belongs
// to, in order, or only name if it is not a part.
func partNames(name string) []string {
	m := splitPart.FindStringSubmatch(name)
	var count int
	if m == nil {
		return []string{name}
	}
	if fmt.Sscan(m[3], &count); count < 1 || count > partsMax {
		return []string{name}
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d-of-%s%s", m[1], i+1, m[3], m[4])
	}
	return names
}

// stem is the name of a model file without its folder, ending and part number.
func stem(name string) string {
	name = path.Base(name)
	if m := splitPart.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return strings.TrimSuffix(name, path.Ext(name))
}
