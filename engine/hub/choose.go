package hub

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// preferred lists the quantisations to choose if the reference names none, the
// best compromise of size, speed and quality first.
var preferred = []string{
	"Q4_K_M", "Q4_0", "Q8_0", "Q4_K_S", "Q4_K_L", "Q4_K_XL", "Q5_K_M", "Q5_K_S", "Q6_K", "Q4_K", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4",
	"Q4_1", "Q5_0", "Q5_1", "Q3_K_M", "Q3_K_L", "Q3_K_S", "Q2_K", "BF16", "F16", "FP16", "F32",
}

// choice is the set of files that a reference selects in a listing.
type choice struct {
	files  []entry
	folder bool // the model is the folder, not the first file
}

// choose selects the files for file: a path, a quantisation, or "".
func (l *listing) choose(file string) (choice, error) {
	if file == "" {
		return l.chooseBest()
	}
	if _, ok := l.find(file); ok {
		return l.whole(file)
	}
	models := l.models()
	if strings.EqualFold(path.Ext(file), ".gguf") {
		return choice{}, fmt.Errorf("%s has no file %q; %s", l.name(), file, l.has(models))
	}
	found := withTag(models, file)
	switch len(found) {
	case 0:
		return choice{}, fmt.Errorf("%s has no file and no quantisation %q; %s", l.name(), file, l.has(models))
	case 1:
		return l.whole(found[0])
	}
	return choice{}, fmt.Errorf("%s has several files for %q; name one of %s", l.name(), file, quoteSome(found))
}

// chooseBest selects the only model file, the file of the preferred
// quantisation, or the folder of a safetensors model.
func (l *listing) chooseBest() (choice, error) {
	models := l.models()
	if len(models) == 0 {
		return l.chooseFolder()
	}
	if len(models) == 1 {
		return l.whole(models[0])
	}
	for _, tag := range preferred {
		switch found := withTag(models, tag); len(found) {
		case 0:
		case 1:
			return l.whole(found[0])
		default:
			return choice{}, fmt.Errorf("%s has several files of type %s; name one of %s", l.name(), tag, quoteSome(found))
		}
	}
	return choice{}, fmt.Errorf("%s has several models; name one of %s", l.name(), quoteSome(models))
}

// folderFile matches the files of a safetensors model other than its weights.
var folderFile = regexp.MustCompile(`^(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|chat_template|model\.safetensors\.index|vocab)\.json$|^tokenizer\.model$|^chat_template\.jinja$|^merges\.txt$`)

func (l *listing) chooseFolder() (choice, error) {
	for _, needed := range []string{"config.json", "tokenizer.json"} {
		if _, ok := l.find(needed); !ok {
			return choice{}, fmt.Errorf("%s has no GGUF file, and no %s to read a model in safetensors with; %s", l.name(), needed, l.hasAny())
		}
	}
	var weights, main []entry
	c := choice{folder: true}
	for _, e := range l.files {
		switch {
		case folderFile.MatchString(e.Name):
			c.files = append(c.files, e)
		case !strings.Contains(e.Name, "/") && strings.HasSuffix(e.Name, ".safetensors"):
			weights = append(weights, e)
			if strings.HasPrefix(e.Name, "model") {
				main = append(main, e)
			}
		}
	}
	if len(main) > 0 { // some publishers add the same weights in a layout of their own
		weights = main
	}
	if len(weights) == 0 {
		return choice{}, fmt.Errorf("%s has no GGUF file and no weights in safetensors; %s", l.name(), l.hasAny())
	}
	for _, w := range weights {
		if missing := l.missing(partNames(w.Name)); len(missing) > 0 {
			return choice{}, fmt.Errorf("%s is incomplete: %s is missing", l.name(), quoteSome(missing))
		}
	}
	c.files = append(c.files, weights...)
	return c, nil
}

// whole returns the file with all its parts, in order.
func (l *listing) whole(file string) (choice, error) {
	names := partNames(file)
	if missing := l.missing(names); len(missing) > 0 {
		return choice{}, fmt.Errorf("%s is incomplete: %s is missing", l.name(), quoteSome(missing))
	}
	var c choice
	for _, name := range names {
		e, _ := l.find(name)
		c.files = append(c.files, e)
	}
	return c, nil
}

// models lists the GGUF files that hold a language model, and the first part of
// each split one. Image projectors and importance matrices are not models.
func (l *listing) models() (names []string) {
	seen := map[string]bool{}
	for _, e := range l.files {
		base := strings.ToLower(path.Base(e.Name))
		if !strings.HasSuffix(base, ".gguf") || strings.Contains(base, "mmproj") || strings.Contains(base, "imatrix") {
			continue
		}
		if first := partNames(e.Name)[0]; !seen[first] {
			seen[first] = true
			names = append(names, first)
		}
	}
	slices.Sort(names)
	return names
}

// withTag returns the names that contain tag as a word: in the file's own name,
// or, if no file has it, in the names of its folders.
func withTag(names []string, tag string) []string {
	word := regexp.MustCompile(`(?i)(^|[-._])` + regexp.QuoteMeta(tag) + `([-.]|$)`)
	inStem := func(name string) bool { return word.MatchString(stem(name)) }
	inFolder := func(name string) bool {
		return slices.ContainsFunc(strings.Split(path.Dir(name), "/"), word.MatchString)
	}
	for _, matches := range []func(string) bool{inStem, inFolder} {
		if found := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !matches(name) }); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (l *listing) find(name string) (entry, bool) {
	if l.places == nil {
		l.places = make(map[string]int, len(l.files))
		for i, e := range l.files {
			l.places[e.Name] = i
		}
	}
	i, ok := l.places[name]
	if !ok {
		return entry{}, false
	}
	return l.files[i], true
}

func (l *listing) missing(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := l.find(name); return ok })
}

// name names the listing's source in an error.
func (l *listing) name() string {
	if l.local {
		return "the cached " + l.repo
	}
	return l.repo
}

// has lists the models for an error, or the files if there is no model.
func (l *listing) has(models []string) string {
	if len(models) == 0 {
		return l.hasAny()
	}
	return "it has " + quoteSome(models)
}

func (l *listing) hasAny() string {
	var names []string
	for _, e := range l.files {
		names = append(names, e.Name)
	}
	if len(names) == 0 {
		return "it has no files"
	}
	return "it has " + quoteSome(names)
}

// quoteSome formats a list for an error, and cuts a long one.
func quoteSome(names []string) string {
	const namesMax = 30
	var b strings.Builder
	for i, name := range names[:min(len(names), namesMax)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	if more := len(names) - namesMax; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
