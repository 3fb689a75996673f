package conf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type filesConfig struct {
	Name    string `yaml:"name" default:"none" help:"A name."`
	Tenants []struct {
		Name   string  `yaml:"name" help:"Name."`
		Weight float64 `yaml:"weight" default:"1" range:"0.1..10" help:"Weight."`
	} `yaml:"tenants" help:"Tenants."`
	Other struct {
		Texts []string `yaml:"texts" help:"Texts."`
	} `yaml:"other"`
}

func (c *filesConfig) Mistakes() error {
	for i, t := range c.Tenants {
		if t.Name == "odd" {
			return fmt.Errorf("tenants[%d].name: is odd", i)
		}
	}
	return nil
}

func TestFilesAreOneConfiguration(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{"tenants: [{name: a, weight: 3}]\nother: {texts: [x]}", "name: n\ntenants:\n- name: b\n", "other: {texts: [y]}"},
			"{n [{a 3} {b 1}] {[x y]}} <nil>"},
		{[]string{"", "# nothing\n"}, "{none [] {[]}} <nil>"},
		{[]string{"name: a", "\nname: b"}, "f1:2: name is set at f0:1 already"},
		{[]string{"tenants: [{name: a}]", "\ntenants:\n- name: b\n- name: a"}, `f1:4: tenants[2] has the name "a", as [0] has`},
		{[]string{"tenants: [{name: a}]", "tenants:\n- name: odd"}, "f1:2: tenants[1].name: is odd"},
		{[]string{"tenants: [{name: a}]", "tenants: [{name: b, weight: 90}]", "x: 1"},
			"f1:1: tenants[0].weight: 90 is out of range; allowed is 0.1 to 10\nf2:1: x is not a known key"},
		{[]string{"name: [", "name: b"}, "f0:1: not valid YAML"},
	} {
		var files []File
		for i, text := range c.files {
			files = append(files, File{fmt.Sprintf("f%d", i), []byte(text)})
		}
		var got filesConfig
		s := Of(&got)
		err := s.LoadFiles(files)
		text := fmt.Sprint(err)
		if err == nil {
			text = fmt.Sprintln(got, err)
		}
		if !strings.HasPrefix(text, c.want) {
			t.Errorf("%q:\ngot  %s\nwant %s", c.files, text, c.want)
		}
	}
	var got filesConfig
	s := Of(&got)
	if err := s.LoadFiles([]File{{"a", []byte("name: x")}, {"b", []byte("other: {texts: [y]}")}}); err != nil {
		t.Fatal(err)
	}
	keys, places := s.Given()
	if diff := cmp.Diff([]string{"name", "other.texts", "a:1", "b:1"}, append(keys, places...)); diff != "" {
		t.Error(diff)
	}
}
