package admin

import (
	"encoding/json"
	"net/http"
)

// setQuota sets the limit of a counter, as in {"limit": 2}; {"limit": null} sets it back.
func (a *api) setQuota(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Limit *int64 `json:"limit"`
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		refuse(w, err)
		return
	}
	if err := a.Cloud.SetQuota(r.PathValue("name"), in.Limit); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
