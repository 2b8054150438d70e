package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Rows are rows of CSV below the names of their columns, which are separated by white space. A cell is what
// the row has under that name in its JSON, or else what one of the values around it has; within another value
// the names are joined: the CSV's estimate_device_bytes is bytes of device of estimate in JSON. NAME=PATH gives a
// column another name. A cell is empty where there is no such value. Bytes are exact, fractions have six digits, and
// what has a method String is written by it.
func Rows[R any](columns string, rows []R, around ...any) [][]string {
	names := strings.Fields(columns)
	paths := make([]string, len(names))
	for i, column := range names {
		name, path, _ := strings.Cut(column, "=")
		names[i], paths[i] = name, cmp.Or(path, name)
	}
	outer := csvCells{}
	for _, v := range around {
		outer.add("", reflect.ValueOf(v))
	}
	all := [][]string{names}
	for _, r := range rows {
		found := maps.Clone(outer)
		found.add("", reflect.ValueOf(r))
		row := make([]string, len(paths))
		for i, path := range paths {
			row[i] = found[path]
		}
		all = append(all, row)
	}
	return all
}

// extra are cells that a row's JSON does not have under a name of its own.
type extra map[string]any

// csvCells are texts by the path of their value.
type csvCells map[string]string

// add adds a value and those within it.
func (c csvCells) add(path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	written := false
	switch x := v.Interface().(type) {
	case time.Time:
		if !x.IsZero() {
			c[path] = x.UTC().Format(time.RFC3339)
		}
		return
	case []Component:
		for _, part := range x {
			c[pathOf(path, strings.ReplaceAll(part.Name, " ", "_"), "bytes")] = integer(part.Bytes)
		}
		return
	case []string:
		c[path] = strings.Join(x, " ")
		return
	case []any:
		for _, part := range x {
			c.add(path, reflect.ValueOf(part))
		}
		return
	case extra:
		for name, value := range x {
			c.add(pathOf(path, name), reflect.ValueOf(value))
		}
		return
	case fmt.Stringer:
		c[path], written = x.String(), true
	}
	v = reflect.Indirect(v)
	if v.Kind() == reflect.Struct {
		c.addFields(path, v)
	} else if text, ok := scalarText(v); ok && !written {
		c[path] = text
	}
}

// addFields adds the fields of a struct under their names in JSON.
func (c csvCells) addFields(path string, v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if value = reflect.Indirect(value); value.Kind() == reflect.Struct {
				c.addFields(path, value)
			}
		case f.IsExported() && name != "-":
			c.add(pathOf(path, cmp.Or(name, f.Name)), value)
		}
	}
}

func pathOf(path ...string) string {
	return strings.TrimPrefix(strings.Join(path, "_"), "_")
}

// scalarText is a number, text or truth in CSV; false for anything else.
func scalarText(v reflect.Value) (text string, ok bool) {
	switch {
	case v.CanInt():
		return integer(v.Int()), true
	case v.CanFloat():
		return number(v.Float()), true
	case v.Kind() == reflect.Bool, v.Kind() == reflect.String:
		return fmt.Sprint(v), true
	}
	return "", false
}

// number shows a fraction with six digits, and a whole number with all of its own.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

// linesOf are documents of one row each, so that files of lines can be cut and put together
// freely; rows is where a document has them.
func linesOf[D, R any](document D, rows func(*D) *[]R) []any {
	all := *rows(&document)
	lines := make([]any, len(all))
	for i := range all {
		*rows(&document) = all[i : i+1 : i+1]
		lines[i] = document
	}
	return lines
}
