package conf

import (
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// Fill sets every zero field of the struct that p points to, and of the
// structs inside it, from its default tag. It panics if a tag does not parse,
// since that is our own mistake.
func Fill(p any) { fill(reflect.ValueOf(p).Elem()) }

func fill(v reflect.Value) {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if field.Kind() == reflect.Struct {
			fill(field)
			continue
		}
		if tag, ok := f.Tag.Lookup("default"); ok && tag != "" && field.IsZero() {
			if err := Set(field, tag); err != nil {
				panic(fmt.Sprintf("conf: default of %s.%s: %v", v.Type(), f.Name, err))
			}
		}
	}
}

// Set parses text into a field of one of the kinds that configuration uses:
// string, bool, int, int64, float64, time.Duration.
func Set(field reflect.Value, text string) error {
	if field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 500ms, 10s or 2m", text)
		}
		field.SetInt(int64(d))
		return nil
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
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		field.SetInt(n)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		field.SetFloat(x)
	default:
		return fmt.Errorf("a field of type %s cannot be configured", field.Type())
	}
	return nil
}
