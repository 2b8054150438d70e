package report

import "fmt"

// field is a column of CSV: its name, and what a row R has there. A value that is nil is an
// empty cell; bytes are exact, and fractions have six digits.
type field[R any] struct {
	name  string
	value func(R) any
}

// recordsOf are rows in CSV, below the names of their columns.
func recordsOf[R any](fields []field[R], rows []R) [][]string {
	head := make([]string, len(fields))
	for i, f := range fields {
		head[i] = f.name
	}
	all := [][]string{head}
	for _, r := range rows {
		cells := make([]string, len(fields))
		for i, f := range fields {
			switch v := f.value(r).(type) {
			case nil:
			case float64:
				cells[i] = number(v)
			default:
				cells[i] = fmt.Sprint(v)
			}
		}
		all = append(all, cells)
	}
	return all
}

// linesOf are documents of one row each, so that files of lines can be cut and put together
// freely.
func linesOf[R any](rows []R, document func([]R) any) []any {
	lines := make([]any, len(rows))
	for i := range rows {
		lines[i] = document(rows[i : i+1 : i+1])
	}
	return lines
}
