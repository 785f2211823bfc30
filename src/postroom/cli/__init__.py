"""The command line: `postroom NOUN VERB`. Each noun is a module here that is imported only when it is used."""
