package controlpb

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

var (
	messageLine = regexp.MustCompile(`^message (\w+) \{`)
	fieldLine   = regexp.MustCompile(`^  (repeated )?(\w+) (\w+) = (\d+);`)
	methodLine  = regexp.MustCompile(`^  rpc (\w+)\((\w+)\) returns \((\w+)\);`)
)

// TestGeneratedCodeIsOfTheProtoFile: every message, field, number and method of
// control.proto is in the generated code, in its order, and nothing else is.
func TestGeneratedCodeIsOfTheProtoFile(t *testing.T) {
	text, err := os.ReadFile("control.proto")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	message := ""
	for line := range strings.Lines(string(text)) {
		if m := messageLine.FindStringSubmatch(line); m != nil {
			message = m[1]
			want = append(want, "message "+message)
		} else if m := fieldLine.FindStringSubmatch(line); m != nil {
			want = append(want, fmt.Sprintf("%s: %s%s %s = %s", message, m[1], m[2], m[3], m[4]))
		} else if m := methodLine.FindStringSubmatch(line); m != nil {
			want = append(want, fmt.Sprintf("rpc %s %s %s", m[1], m[2], m[3]))
		}
	}
	var got []string
	file := File_control_proto
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		got = append(got, "message "+string(m.Name()))
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			repeated, kind := "", f.Kind().String()
			if f.Cardinality() == protoreflect.Repeated {
				repeated = "repeated "
			}
			if f.Message() != nil {
				kind = string(f.Message().Name())
			}
			got = append(got, fmt.Sprintf("%s: %s%s %s = %d", m.Name(), repeated, kind, f.Name(), f.Number()))
		}
	}
	for i := range file.Services().Len() {
		for j := range file.Services().Get(i).Methods().Len() {
			m := file.Services().Get(i).Methods().Get(j)
			got = append(got, fmt.Sprintf("rpc %s %s %s", m.Name(), m.Input().Name(), m.Output().Name()))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the generated code has\n%s\nand control.proto\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if fields := strings.Count(string(text), " = "); len(want) < 20 || fields != strings.Count(strings.Join(want, "\n"), " = ")+2 { // syntax and go_package
		t.Errorf("%d lines of control.proto were read, of %d with an equals sign", len(want), fields)
	}
	if string(file.Package()) != "forebay.control.v1" {
		t.Error(file.Package())
	}
}
