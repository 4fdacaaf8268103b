package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Table reads of each object only some columns of the table that kubectl shows, which are fields of the object by the additionalPrinterColumns of its
// CustomResourceDefinition. To send whole objects costs the API server three times as much, and ten times the bytes: it copies each and writes it with its
// managed fields.
type Table struct {
	// Columns are the names of the columns that are read. A list is read whole if the definition, which may be older than this program, lacks one.
	Columns []string
	// Row returns what is kept of an object, by the texts of its columns; "" for no text.
	Row func(cells []string) (runtime.Object, error)
}

const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// errNoTable says that the answer is no table with the columns.
var errNoTable = errors.New("the answer is no table with the columns that are read")

func asTable(request *rest.Request) *rest.Request {
	return request.SetHeader("Accept", tableType).Param("includeObject", string(metav1.IncludeNone))
}

// tablePage reads a page of a table.
type tablePage struct {
	*Table
	// places are those of the columns in a row; nil until the definitions of the columns have been read, which come before the rows.
	places []int
	cells  []string
}

func (p *tablePage) member(key json.Token, text *json.Decoder, list *metainternalversion.List) error {
	switch key {
	case "columnDefinitions":
		return p.find(text)
	case "rows":
		if p.places == nil {
			return errNoTable
		}
		return each(text, func() error { return p.row(text, list) })
	}
	return text.Decode(&skipped{})
}

// find finds the columns among those of the table.
func (p *tablePage) find(text *json.Decoder) error {
	var definitions []metav1.TableColumnDefinition
	if err := text.Decode(&definitions); err != nil {
		return err
	}
	p.places, p.cells = make([]int, len(p.Columns)), make([]string, len(p.Columns))
	for i, column := range p.Columns {
		p.places[i] = slices.IndexFunc(definitions, func(d metav1.TableColumnDefinition) bool { return d.Name == column })
		if p.places[i] < 0 {
			return fmt.Errorf("%w: no column %s", errNoTable, column)
		}
	}
	return nil
}

func (p *tablePage) row(text *json.Decoder, list *metainternalversion.List) error {
	var row struct {
		Cells []any `json:"cells"`
	}
	if err := text.Decode(&row); err != nil {
		return err
	}
	for i, place := range p.places {
		if place >= len(row.Cells) {
			return fmt.Errorf("a row has %d cells, and column %s is cell %d", len(row.Cells), p.Columns[i], place)
		}
		p.cells[i], _ = row.Cells[place].(string) // null for no value
	}
	kept, err := p.Row(p.cells)
	list.Items = append(list.Items, kept)
	return err
}
