package conf

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Fill sets every zero field of the struct that p points to, and of the
// structs inside it, from its default tag. It panics if a tag does not parse,
// since that is a mistake in our code.
func Fill(p any) { fill(reflect.ValueOf(p).Elem()) }

func fill(v reflect.Value) {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		switch {
		case field.Kind() == reflect.Struct:
			fill(field)
			continue
		case isList(field.Type()):
			for i := range field.Len() {
				fill(field.Index(i))
			}
			continue
		}
		if tag := f.Tag.Get("default"); tag != "" && field.IsZero() {
			if err := setText(field, f.Tag.Get("yaml"), tag); err != nil {
				panic(fmt.Sprintf("conf: default of %s.%s: %v", v.Type(), f.Name, err))
			}
		}
	}
}

// setText parses text into a field. The key tells whether a number counts bytes.
func setText(field reflect.Value, key, text string) error {
	if field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 500ms, 10s or 2m", text)
		}
		field.SetInt(int64(d))
		return notNegative(d < 0)
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		field.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := parseInt(key, text)
		if err != nil {
			return err
		}
		field.SetInt(n)
		return notNegative(n < 0)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x-x != 0 { // NaN and the infinities
			return fmt.Errorf("%q is not a number", text)
		}
		field.SetFloat(x)
		return notNegative(x < 0)
	default:
		return fmt.Errorf("a field of type %s cannot be configured", field.Type())
	}
	return nil
}

func notNegative(negative bool) error {
	if negative {
		return errors.New("must not be negative")
	}
	return nil
}

// byteUnits are tried in this order, since B is a suffix of the other units.
var byteUnits = []struct {
	suffix string
	size   int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

func isBytes(key string) bool {
	return strings.HasSuffix(key, "_bytes") || strings.HasSuffix(key, "_bytes_max")
}

func parseInt(key, text string) (int64, error) {
	number, size := text, int64(1)
	if isBytes(key) {
		for _, u := range byteUnits {
			if rest, ok := strings.CutSuffix(text, u.suffix); ok {
				number, size = strings.TrimSpace(rest), u.size
				break
			}
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil && isBytes(key):
		return 0, fmt.Errorf("%q is not a number of bytes such as 65536, 64KiB or 2GiB", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	case n*size/size != n:
		return 0, fmt.Errorf("%q does not fit into 64 bits", text)
	}
	return n * size, nil
}

// formatText is the inverse of setText: the shortest readable text of a field.
func formatText(field reflect.Value, key string) string {
	if field.Kind() == reflect.Slice {
		return flow(field)
	}
	if d, ok := field.Interface().(time.Duration); ok {
		s := d.String()
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	}
	if field.CanInt() && isBytes(key) && field.Int() != 0 {
		for i := 3; i >= 0; i-- {
			if u := byteUnits[i]; field.Int()%u.size == 0 {
				return fmt.Sprintf("%d%s", field.Int()/u.size, u.suffix)
			}
		}
	}
	return fmt.Sprint(field.Interface())
}
